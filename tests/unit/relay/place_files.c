#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/id.h"
#include "client.h"

struct fixture {
	struct rig rig;
	struct peer peer;
	int root;
};

static int set_up(void **state)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	rig_start(&f->rig, NULL);
	assert_int_equal(peer_open(&f->peer, &f->rig, 1), 0);
	f->root = open(f->rig.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	close(f->root);
	peer_close(&f->peer);
	rig_stop(&f->rig);
	free(f);
	return 0;
}

static void put(struct fixture *f, const char *name, const char *text)
{
	assert_int_equal(file_replace(f->root, name, text, strlen(text), 0644, NULL), 0);
}

static void assert_holds(int dir, const char *name, const char *text)
{
	_cleanup_buf_ struct buf content = { 0 };

	assert_int_equal(file_read(dir, name, &content, 1 << 20, NULL), 0);
	assert_string_equal(buf_str(&content), text);
}

/* The whole file (or range) in `out`; 0 or the error's code. */
static uint32_t read_file(struct fixture *f, const struct wire_file_read *m, struct buf *out)
{
	uint32_t stream = peer_ask(&f->peer, WIRE_FILE_READ, m);

	for (;;) {
		unsigned type = peer_next_on(&f->peer, stream);

		if (type == WIRE_ERROR)
			return f->peer.m.error.code;
		if (type != WIRE_DATA) {
			assert_int_equal(type, WIRE_FILE_INFO);
			continue;
		}
		buf_append(out, f->peer.frame.payload, f->peer.frame.length);
		if (f->peer.frame.flags & WIRE_END)
			return 0;
		peer_say(&f->peer, stream, WIRE_CREDIT,
			 &(struct wire_credit){ .bytes = f->peer.frame.length });
	}
}

static uint32_t read_path(struct fixture *f, const char *path)
{
	_cleanup_buf_ struct buf out = { 0 };

	return read_file(f, &(struct wire_file_read){ .path = path, .credit = 1 << 20 }, &out);
}

/* Respects credit; returns 0 with the new tag, or the code. */
static uint32_t write_file(struct fixture *f, const struct wire_file_write *m, const void *data,
			   size_t len, char *tag)
{
	uint32_t stream = peer_ask(&f->peer, WIRE_FILE_WRITE, m);
	size_t credit = WIRE_WRITE_CREDIT, sent = 0;
	bool ended = false;

	for (;;) {
		size_t n = MIN_OF(MIN_OF(credit, len - sent), 100000);
		unsigned type;

		if (!ended && (n > 0 || sent == len)) {
			ended = sent + n == len;
			peer_data(&f->peer, stream, (const char *)data + sent, n, ended);
			sent += n;
			credit -= n;
			continue;
		}
		type = peer_next_on(&f->peer, stream);
		if (type == WIRE_ERROR)
			return f->peer.m.error.code;
		if (type == WIRE_CREDIT) {
			credit += f->peer.m.credit.bytes;
			continue;
		}
		assert_int_equal(type, WIRE_FILE_INFO);
		if (tag)
			snprintf(tag, 80, "%s", f->peer.m.file_info.tag);
		return 0;
	}
}

static uint32_t write_text(struct fixture *f, const char *path, const char *text)
{
	return write_file(f, &(struct wire_file_write){ .path = path }, text, strlen(text), NULL);
}

static uint32_t stat_path(struct fixture *f, const char *path)
{
	return peer_call(&f->peer, WIRE_FILE_STAT, &(struct wire_file_stat){ .path = path });
}

static void content_comes_back_byte_for_byte_and_in_ranges(void **state)
{
	struct fixture *f = *state;
	_cleanup_buf_ struct buf out = { 0 };
	const size_t size = 5 << 20;
	_cleanup_free_ uint8_t *data = xmalloc(size);

	random_bytes(data, size);
	assert_int_equal(write_file(f, &(struct wire_file_write){ .path = "big", .mode = 0640 },
				    data, size, NULL),
			 0);
	assert_int_equal(stat_path(f, "big"), 0);
	assert_int_equal(f->peer.m.file_info.size, size);
	assert_int_equal(f->peer.m.file_info.mode, 0640);
	assert_int_equal(
		read_file(f, &(struct wire_file_read){ .path = "big", .credit = 50000 }, &out), 0);
	assert_int_equal(out.len, size);
	assert_memory_equal(out.data, data, size);
	buf_reset(&out);
	assert_int_equal(
		read_file(f,
			  &(struct wire_file_read){
				  .path = "big", .credit = 9, .offset = 1000, .length = 70 },
			  &out),
		0);
	assert_int_equal(out.len, 70);
	assert_memory_equal(out.data, data + 1000, 70);
	buf_reset(&out);
	assert_int_equal(read_file(f,
				   &(struct wire_file_read){
					   .path = "big", .offset = UINT64_MAX, .credit = 9 },
				   &out),
			 0);
	assert_int_equal(out.len, 0);
}

static void nothing_outside_the_root_is_reached(void **state)
{
	static const char *const escapes[] = {
		"../secret", "..",       "/etc/passwd",    "dir/../../secret",
		"link-out",  "link-abs", "dir-out/secret", "magic/root/etc/passwd",
		"",
	};
	struct fixture *f = *state;

	assert_int_equal(file_replace(f->rig.dir_fd, "secret", "secret", 6, 0644, NULL), 0);
	assert_int_equal(mkdirat(f->root, "dir", 0755), 0);
	assert_int_equal(symlinkat("../secret", f->root, "link-out"), 0);
	assert_int_equal(symlinkat("/etc/passwd", f->root, "link-abs"), 0);
	assert_int_equal(symlinkat("..", f->root, "dir-out"), 0);
	assert_int_equal(symlinkat("/proc/self", f->root, "magic"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(escapes); i++) {
		assert_int_equal(read_path(f, escapes[i]), WERR_BAD_PATH);
		assert_int_not_equal(write_text(f, escapes[i], "x"), 0);
		assert_int_not_equal(
			peer_call(&f->peer, WIRE_FILE_REMOVE,
				  &(struct wire_file_remove){ .path = escapes[i], .recursive = 1 }),
			escapes[i][0] == 'l' ? 99 : 0);
	}
	assert_holds(f->rig.dir_fd, "secret", "secret");
	put(f, "mine", "mine");
	assert_int_equal(
		peer_call(&f->peer, WIRE_FILE_RENAME,
			  &(struct wire_file_rename){ .from = "mine", .to = "dir-out/stolen" }),
		WERR_BAD_PATH);
	assert_int_equal(peer_call(&f->peer, WIRE_FILE_MKDIR,
				   &(struct wire_file_mkdir){ .path = "dir-out/x", .parents = 1 }),
			 WERR_BAD_PATH);
}

static void links_inside_are_followed_for_reading_and_refused_for_writing(void **state)
{
	struct fixture *f = *state;

	put(f, "real", "content");
	assert_int_equal(symlinkat("real", f->root, "link"), 0);
	assert_int_equal(read_path(f, "link"), 0);
	assert_int_equal(write_text(f, "link", "other"), WERR_FILE_TYPE);
	assert_holds(f->root, "real", "content");
	assert_int_equal(stat_path(f, "link"), 0);
	assert_int_equal(f->peer.m.file_info.type, FILE_SYMLINK);
	assert_string_equal(f->peer.m.file_info.target, "real");
}

static void special_files_are_described_and_never_opened(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(mkfifoat(f->root, "fifo", 0644), 0);
	assert_int_equal(stat_path(f, "fifo"), 0);
	assert_int_equal(f->peer.m.file_info.type, FILE_FIFO);
	assert_int_equal(read_path(f, "fifo"), WERR_FILE_TYPE);
	assert_int_equal(write_text(f, "fifo", "x"), WERR_FILE_TYPE);
	assert_int_equal(read_path(f, "."), WERR_FILE_TYPE);
	if (geteuid() == 0 && mknodat(f->root, "zero", S_IFCHR | 0666, 0x105) == 0) {
		assert_int_equal(read_path(f, "zero"), WERR_FILE_TYPE);
		assert_int_equal(write_text(f, "zero", "x"), WERR_FILE_TYPE);
	}
}

static void a_write_that_is_given_up_leaves_the_old_file_and_no_trace(void **state)
{
	struct fixture *f = *state;
	uint32_t stream;

	put(f, "file", "old");
	stream = peer_ask(&f->peer, WIRE_FILE_WRITE, &(struct wire_file_write){ .path = "file" });
	peer_data(&f->peer, stream, "half", 4, false);
	peer_say(&f->peer, stream, WIRE_RESET, &(struct wire_reset){});
	stream = peer_ask(&f->peer, WIRE_FILE_WRITE, &(struct wire_file_write){ .path = "file" });
	peer_data(&f->peer, stream, "half", 4, false);
	peer_close(&f->peer);
	assert_int_equal(peer_open(&f->peer, &f->rig, 2), 0);
	assert_holds(f->root, "file", "old");
	peer_ask(&f->peer, WIRE_FILE_LIST, &(struct wire_file_list){ .path = "." });
	assert_int_equal(peer_next(&f->peer), WIRE_FILE_INFO);
	assert_string_equal(f->peer.m.file_info.name, "file");
	assert_int_equal(peer_next(&f->peer), WIRE_FILE_PAGE);
}

static void a_relay_killed_in_the_middle_of_a_write_leaves_the_old_file(void **state)
{
	struct fixture *f = *state;
	uint32_t stream;

	put(f, "file", "old");
	stream = peer_ask(&f->peer, WIRE_FILE_WRITE, &(struct wire_file_write){ .path = "file" });
	peer_data(&f->peer, stream, "half", 4, false);
	assert_int_equal(stat_path(f, "file"), 0);
	kill(f->rig.pid, SIGKILL);
	assert_true(process_is_gone_soon(f->rig.pid));
	assert_holds(f->root, "file", "old");
}

static void conditions_of_a_write_are_kept(void **state)
{
	struct fixture *f = *state;
	struct wire_file_write m = { .path = "file", .no_clobber = 1 };
	char tag[80], newer[80];

	assert_int_equal(write_file(f, &m, "one", 3, tag), 0);
	assert_int_equal(write_file(f, &m, "two", 3, NULL), WERR_EXISTS);
	m.no_clobber = 0;
	m.if_match = tag;
	assert_int_equal(stat_path(f, "file"), 0);
	snprintf(tag, sizeof(tag), "%s", f->peer.m.file_info.tag);
	assert_int_equal(write_file(f, &m, "two", 3, newer), 0);
	assert_int_equal(write_file(f, &m, "three", 5, NULL), WERR_CHANGED);
	assert_holds(f->root, "file", "two");
	m.path = "absent";
	assert_int_equal(write_file(f, &m, "x", 1, NULL), WERR_CHANGED);
}

static void a_write_keeps_the_mode_of_the_old_file(void **state)
{
	struct fixture *f = *state;

	put(f, "script", "#!/bin/sh\n");
	assert_int_equal(peer_call(&f->peer, WIRE_FILE_CHMOD,
				   &(struct wire_file_chmod){ .path = "script", .mode = 0755 }),
			 0);
	assert_int_equal(write_text(f, "script", "#!/bin/sh\necho\n"), 0);
	assert_int_equal(stat_path(f, "script"), 0);
	assert_int_equal(f->peer.m.file_info.mode, 0755);
}

static void directories_are_made_listed_in_pages_renamed_and_removed(void **state)
{
	struct fixture *f = *state;
	struct wire_file_list list = { .path = "a/b/c", .limit = 7 };
	unsigned seen = 0, pages = 0;

	assert_int_equal(
		peer_call(&f->peer, WIRE_FILE_MKDIR, &(struct wire_file_mkdir){ .path = "a/b/c" }),
		WERR_NOT_FOUND);
	assert_int_equal(peer_call(&f->peer, WIRE_FILE_MKDIR,
				   &(struct wire_file_mkdir){ .path = "a/b/c", .parents = 1 }),
			 0);
	assert_int_equal(peer_call(&f->peer, WIRE_FILE_MKDIR,
				   &(struct wire_file_mkdir){ .path = "a/b/c", .parents = 1 }),
			 0);
	assert_int_equal(
		peer_call(&f->peer, WIRE_FILE_MKDIR, &(struct wire_file_mkdir){ .path = "a" }),
		WERR_EXISTS);
	for (unsigned i = 0; i < 50; i++) {
		_cleanup_free_ char *name = xasprintf("a/b/c/%u", i);

		assert_int_equal(write_text(f, name, ""), 0);
	}
	do {
		uint32_t stream = peer_ask(&f->peer, WIRE_FILE_LIST, &list);

		while (peer_next_on(&f->peer, stream) == WIRE_FILE_INFO)
			seen++;
		assert_int_equal(f->peer.frame.type, WIRE_FILE_PAGE);
		list.cursor = f->peer.m.file_page.cursor;
		pages++;
	} while (list.cursor);
	assert_int_equal(seen, 50);
	assert_true(pages >= 8);
	assert_int_equal(peer_call(&f->peer, WIRE_FILE_RENAME,
				   &(struct wire_file_rename){ .from = "a/b", .to = "moved" }),
			 0);
	put(f, "in-the-way", "");
	assert_int_equal(peer_call(&f->peer, WIRE_FILE_RENAME,
				   &(struct wire_file_rename){
					   .from = "moved", .to = "in-the-way", .no_replace = 1 }),
			 WERR_EXISTS);
	assert_int_equal(peer_call(&f->peer, WIRE_FILE_REMOVE,
				   &(struct wire_file_remove){ .path = "moved" }),
			 WERR_NOT_EMPTY);
	assert_int_equal(peer_call(&f->peer, WIRE_FILE_REMOVE,
				   &(struct wire_file_remove){ .path = "moved", .recursive = 1 }),
			 0);
	assert_int_equal(stat_path(f, "moved"), WERR_NOT_FOUND);
	assert_int_equal(peer_call(&f->peer, WIRE_FILE_REMOVE,
				   &(struct wire_file_remove){ .path = ".", .recursive = 1 }),
			 WERR_BAD_PATH);
}

struct swapper {
	int root;
	atomic_bool stop;
};

/* Exchanges a directory with a link that leads out, as fast as it can. */
static void *swap_for_ever(void *arg)
{
	struct swapper *s = arg;

	while (!atomic_load(&s->stop))
		syscall(SYS_renameat2, s->root, "door", s->root, "trap", 2u);
	return NULL;
}

static void a_directory_swapped_for_a_link_under_way_leads_nowhere(void **state)
{
	struct fixture *f = *state;
	struct swapper s = { .root = f->root };
	pthread_t thread;
	unsigned inside = 0;

	assert_int_equal(mkdirat(f->root, "door", 0755), 0);
	put(f, "door-content", "x");
	assert_int_equal(symlinkat("../outside", f->root, "trap"), 0);
	assert_int_equal(mkdirat(f->rig.dir_fd, "outside", 0755), 0);
	assert_int_equal(file_replace(f->rig.dir_fd, "outside/file", "outside", 7, 0644, NULL), 0);
	assert_int_equal(pthread_create(&thread, NULL, swap_for_ever, &s), 0);
	for (int i = 0; i < 300; i++) {
		_cleanup_buf_ struct buf out = { 0 };

		inside += write_text(f, "door/file", "inside") == 0;
		read_file(f, &(struct wire_file_read){ .path = "door/file", .credit = 100 }, &out);
		assert_null(strstr(buf_str(&out), "outside"));
	}
	atomic_store(&s.stop, true);
	pthread_join(thread, NULL);
	assert_true(inside > 0);
	assert_holds(f->rig.dir_fd, "outside/file", "outside");
}

static void files_are_touched_as_the_payloads_user(void **state)
{
	struct fixture f = { 0 };

	(void)state;
	if (geteuid() != 0)
		skip();
	rig_start(&f.rig, &(struct rig_options){ .run_as = 65534 });
	assert_int_equal(peer_open(&f.peer, &f.rig, 1), 0);
	f.root = open(f.rig.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(write_text(&f, "mine", "x"), 0);
	assert_int_equal(stat_path(&f, "mine"), 0);
	assert_int_equal(f.peer.m.file_info.uid, 65534);
	put(&f, "roots", "x");
	assert_int_equal(fchmodat(f.root, "roots", 0600, 0), 0);
	assert_int_equal(read_path(&f, "roots"), WERR_DENIED);
	assert_int_equal(peer_call(&f.peer, WIRE_FILE_CHMOD,
				   &(struct wire_file_chmod){ .path = "roots", .mode = 0666 }),
			 WERR_DENIED);
	close(f.root);
	peer_close(&f.peer);
	rig_stop(&f.rig);
}

static void on_the_whole_host_paths_are_absolute(void **state)
{
	struct fixture f = { 0 };
	_cleanup_free_ char *path = NULL;

	(void)state;
	rig_start(&f.rig, &(struct rig_options){ .whole_host = true });
	assert_int_equal(peer_open(&f.peer, &f.rig, 1), 0);
	path = xasprintf("%s/file", f.rig.root);
	assert_int_equal(write_text(&f, path, "x"), 0);
	assert_int_equal(read_path(&f, path), 0);
	assert_int_equal(read_path(&f, "etc/passwd"), WERR_BAD_PATH);
	assert_int_equal(read_path(&f, "/proc/self/root/etc/passwd"), WERR_BAD_PATH);
	peer_close(&f.peer);
	rig_stop(&f.rig);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(content_comes_back_byte_for_byte_and_in_ranges),
		T(nothing_outside_the_root_is_reached),
		T(links_inside_are_followed_for_reading_and_refused_for_writing),
		T(special_files_are_described_and_never_opened),
		T(a_write_that_is_given_up_leaves_the_old_file_and_no_trace),
		T(a_relay_killed_in_the_middle_of_a_write_leaves_the_old_file),
		T(conditions_of_a_write_are_kept),
		T(a_write_keeps_the_mode_of_the_old_file),
		T(directories_are_made_listed_in_pages_renamed_and_removed),
		T(a_directory_swapped_for_a_link_under_way_leads_nowhere),
		cmocka_unit_test(files_are_touched_as_the_payloads_user),
		cmocka_unit_test(on_the_whole_host_paths_are_absolute),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
