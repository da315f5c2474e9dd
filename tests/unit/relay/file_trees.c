#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/fd.h"
#include "base/text.h"
#include "client.h"
#include "filetree/entry.h"
#include "wire/tree_record.h"

#define OTHER_USER 54321
#define PLENTY (4u << 20)

struct fixture {
	struct rig rig;
	struct peer peer;
	int root, out;  /* the place's directory, and one beside it */
	struct buf say; /* records to be sent */
	struct buf got; /* records of the answer */
	char failure[600];
};

static int set_up_as(void **state, uid_t user)
{
	struct fixture *f = xcalloc(1, sizeof(*f));

	rig_start(&f->rig, &(struct rig_options){ .run_as = user });
	assert_int_equal(peer_open(&f->peer, &f->rig, 1), 0);
	f->root = open(f->rig.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(f->rig.dir_fd, "outside", 0777), 0);
	f->out = openat(f->rig.dir_fd, "outside", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	*state = f;
	return 0;
}

static int set_up(void **state)
{
	return set_up_as(state, 0);
}

static int set_up_other(void **state)
{
	return set_up_as(state, OTHER_USER);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	close(f->root);
	close(f->out);
	peer_close(&f->peer);
	rig_stop(&f->rig);
	buf_free(&f->say);
	buf_free(&f->got);
	free(f);
	return 0;
}

static void write_text(int dir, const char *name, const char *text)
{
	assert_int_equal(file_replace(dir, name, text, strlen(text), 0644, NULL), 0);
}

static void assert_text(int dir, const char *name, const char *text)
{
	_cleanup_buf_ struct buf content = { 0 };

	assert_int_equal(file_read(dir, name, &content, 1 << 20, NULL), 0);
	assert_string_equal(buf_str(&content), text);
}

/* Saying */

static void say(struct fixture *f, enum record_kind kind, const char *text)
{
	wire_record_append(&f->say, kind, text, strlen(text));
}

static void say_entry(struct fixture *f, enum tree_type type, const char *path, uint32_t mode,
		      uint64_t size, const char *target)
{
	struct tree_entry entry = {
		.path = path,
		.path_len = (uint32_t)strlen(path),
		.type = type,
		.mode = mode,
		.size = size,
		.target = target,
		.target_len = target ? (uint32_t)strlen(target) : 0,
	};
	size_t start = wire_record_begin(&f->say, RECORD_PUT);

	tree_entry_encode(&f->say, &entry);
	wire_record_end(&f->say, start);
}

static void say_file(struct fixture *f, const char *path, const char *text)
{
	say_entry(f, TREE_FILE, path, 0644, strlen(text), NULL);
	if (text[0])
		say(f, RECORD_CONTENT, text);
}

/* Sends what is to be said, in frames of odd sizes. */
static void send_said(struct fixture *f, uint32_t stream, bool end)
{
	for (size_t at = 0; at < f->say.len; at += 777)
		peer_data(&f->peer, stream, f->say.data + at, MIN_OF(777, f->say.len - at),
			  end && at + 777 >= f->say.len);
	buf_reset(&f->say);
}

/* Everything up to the end; 0, or the code of ERROR. */
static uint32_t receive(struct fixture *f, uint32_t stream)
{
	buf_reset(&f->got);
	for (;;) {
		unsigned type = peer_next_on(&f->peer, stream);

		assert_int_not_equal(type, 0);
		if (type == WIRE_ERROR)
			return f->peer.m.error.code;
		if (type == WIRE_CREDIT)
			continue;
		assert_int_equal(type, WIRE_DATA);
		buf_append(&f->got, f->peer.frame.payload, f->peer.frame.length);
		if (f->peer.frame.flags & WIRE_END)
			return 0;
		peer_say(&f->peer, stream, WIRE_CREDIT,
			 &(struct wire_credit){ .bytes = f->peer.frame.length });
	}
}

/* "path:flags" of each entry, "path" of what is none, and how it ended: "ok" or an error's name. */
static char *told(struct fixture *f)
{
	_cleanup_buf_ struct buf text = { 0 };
	struct record record;
	size_t pos = 0, used;

	while (pos < f->got.len) {
		struct tree_entry entry;

		assert_int_equal(wire_record_parse((const uint8_t *)f->got.data + pos,
						   f->got.len - pos, &record, &used, NULL),
				 1);
		pos += used;
		if (record.kind == RECORD_ENTRY) {
			assert_int_equal(
				tree_entry_decode(record.payload, record.length, &entry, NULL),
				record.length);
			buf_printf(&text, "%s:%u ", entry.path, (unsigned)entry.flags);
		} else if (record.kind == RECORD_NONE) {
			buf_printf(&text, "%.*s ", (int)record.length,
				   (const char *)record.payload);
		} else if (record.kind == RECORD_DONE) {
			buf_puts(&text, "ok");
		} else if (record.kind == RECORD_FAILED) {
			buf_puts(&text, wire_error_name(get_le32(record.payload)));
			snprintf(f->failure, sizeof(f->failure), "%.*s", (int)record.length - 8,
				 (const char *)record.payload + 8);
		}
	}
	return buf_steal(&text);
}

static void assert_told(struct fixture *f, const char *expected)
{
	_cleanup_free_ char *text = told(f);

	if (strcmp(text, expected) != 0)
		fail_msg("\"%s\" instead of \"%s\" (%s)", text, expected, f->failure);
}

static void do_scan(struct fixture *f)
{
	struct wire_tree_scan m = { .root = ".", .credit = PLENTY, .max_entries = 1000 };

	assert_int_equal(receive(f, peer_ask(&f->peer, WIRE_TREE_SCAN, &m)), 0);
}

static void do_put(struct fixture *f, const char *root)
{
	struct wire_tree_put m = { .root = root, .credit = PLENTY };
	uint32_t stream = peer_ask(&f->peer, WIRE_TREE_PUT, &m);

	say(f, RECORD_FINISH, "");
	send_said(f, stream, false);
	assert_int_equal(receive(f, stream), 0);
}

static void do_hash(struct fixture *f)
{
	struct wire_tree_hash m = { .root = ".", .credit = PLENTY };
	uint32_t stream = peer_ask(&f->peer, WIRE_TREE_HASH, &m);

	say(f, RECORD_FINISH, "");
	send_said(f, stream, false);
	assert_int_equal(receive(f, stream), 0);
}

/* How many processes the relay has besides itself. */
static int children(const struct rig *rig)
{
	char path[64], text[256] = "";
	int fd, count = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)rig->pid, (int)rig->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(read(fd, text, sizeof(text) - 1) >= 0);
	close(fd);
	for (const char *p = text; (p = strchr(p, ' ')); p++)
		count++;
	return count;
}

static pid_t only_child(const struct rig *rig)
{
	char path[64], text[64] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)rig->pid, (int)rig->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return atoi(text);
}

#define wait_until(condition)                                                                      \
	do {                                                                                       \
		int64_t _until = test_now_ms() + CLIENT_WAIT_MS;                                   \
		while (!(condition) && test_now_ms() < _until)                                     \
			usleep(2000);                                                              \
		assert_true(condition);                                                            \
	} while (0)

/* The payload's rights count. */

static void what_the_user_may_not_read_is_told(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(mkdirat(f->root, "closed", 0700), 0);
	assert_int_equal(mkdirat(f->root, "open", 0755), 0);
	write_text(f->root, "closed/x", "x");
	write_text(f->root, "open/secret", "x");
	assert_int_equal(fchmodat(f->root, "open/secret", 0600, 0), 0);
	do_scan(f);
	assert_told(f, "closed:2 open:0 open/secret:0 ok");
	say(f, RECORD_PATH, "open/secret");
	say(f, RECORD_PATH, "closed/x");
	do_hash(f);
	assert_told(f, "open/secret:2 closed/x ok");
}

static void files_are_written_as_the_user(void **state)
{
	struct fixture *f = *state;
	struct stat st;

	say_entry(f, TREE_DIR, "d", 0555, 0, NULL);
	say_file(f, "d/f", "x");
	do_put(f, ".");
	assert_told(f, "d:0 d/f:0 ok");
	assert_int_equal(fstatat(f->root, "d/f", &st, 0), 0);
	assert_int_equal(st.st_uid, OTHER_USER);
	/* Its own directory may be read-only, now and when more comes later. */
	assert_int_equal(fstatat(f->root, "d", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0555);
	say_file(f, "d/f", "new");
	say_file(f, "d/g", "more");
	say_entry(f, TREE_SYMLINK, "d/l", 0777, 0, "x");
	say_entry(f, TREE_DIR, "d/s", 0500, 0, NULL);
	say(f, RECORD_REMOVE, "d/gone");
	do_put(f, ".");
	assert_told(f, "d/f:0 d/g:0 d/s:0 ok");
	say(f, RECORD_REMOVE, "d/g");
	do_put(f, ".");
	assert_told(f, "ok");
	assert_text(f->root, "d/f", "new");
	assert_int_equal(fstatat(f->root, "d", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0555);
	assert_int_equal(faccessat(f->root, "d/g", F_OK, 0), -1);
	/* What is another one's stays it. */
	assert_int_equal(mkdirat(f->root, "roots", 0755), 0);
	write_text(f->root, "roots/f", "old");
	say_file(f, "roots/f", "new");
	do_put(f, ".");
	assert_told(f, "file_denied");
	assert_text(f->root, "roots/f", "old");
}

static void a_file_that_replaces_keeps_no_name_of_its_own(void **state)
{
	struct fixture *f = *state;

	say_file(f, "a", "one");
	do_put(f, ".");
	say_file(f, "a", "two");
	do_put(f, ".");
	assert_told(f, "a:0 ok");
	do_scan(f);
	assert_told(f, "a:0 ok");
}

/* Meanwhile */

static void place_a_huge_file(struct fixture *f, const char *name)
{
	int fd = openat(f->root, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

	assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
	close(fd);
}

static void execs_and_pings_go_on_while_a_tree_is_hashed(void **state)
{
	struct fixture *f = *state;
	struct outcome o = { 0 };
	struct wire_tree_hash m = { .root = ".", .credit = PLENTY };
	uint32_t stream = peer_ask(&f->peer, WIRE_TREE_HASH, &m);
	unsigned type;

	place_a_huge_file(f, "huge");
	say(f, RECORD_PATH, "huge");
	send_said(f, stream, false);
	wait_until(children(&f->rig) == 1);
	peer_say(&f->peer, 0, WIRE_PING, &(struct wire_ping){ .token = 7 });
	do
		type = peer_next(&f->peer);
	while (type == WIRE_DATA);
	assert_int_equal(type, WIRE_PONG);
	outcome_run(&o, &f->peer, "echo hello");
	assert_string_equal(buf_str(&o.out), "hello\n");
	outcome_free(&o);
	/* Nobody hashes on for somebody who does not want it. */
	peer_say(&f->peer, stream, WIRE_RESET, &(struct wire_reset){});
	wait_until(children(&f->rig) == 0);
}

/* Its process was born with the pipes of a command that ran then. */
static void a_command_ends_although_a_tree_is_being_put(void **state)
{
	struct fixture *f = *state;
	struct wire_tree_put m = { .root = ".", .credit = PLENTY };
	struct wire_exec_start start = SHELL("echo up; exec cat");
	struct outcome o;
	uint32_t stream;

	start.stdin_mode = WIRE_STDIN_STREAM;
	outcome_start(&o, &f->peer, &start);
	outcome_wait_text(&o, &f->peer, "up");
	stream = peer_ask(&f->peer, WIRE_TREE_PUT, &m);
	wait_until(children(&f->rig) == 2);
	peer_data(&f->peer, o.stream, (const uint8_t *)"end", 3, true);
	outcome_wait(&o, &f->peer);
	assert_string_equal(buf_str(&o.out), "up\nend");
	assert_int_equal(o.exit.reason, REASON_EXITED);
	outcome_free(&o);
	assert_int_equal(children(&f->rig), 1);
	peer_say(&f->peer, stream, WIRE_RESET, &(struct wire_reset){});
	wait_until(children(&f->rig) == 0);
}

static void a_tree_that_nobody_reads_holds_nothing_up(void **state)
{
	struct fixture *f = *state;
	struct wire_tree_scan m = { .root = ".", .credit = 0, .max_entries = 100000 };
	struct outcome o = { 0 };
	uint32_t stream;

	for (int i = 0; i < 3000; i++) {
		char name[200];

		snprintf(name, sizeof(name), "%0150d", i);
		close(openat(f->root, name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	}
	stream = peer_ask(&f->peer, WIRE_TREE_SCAN, &m);
	outcome_run(&o, &f->peer, "echo hello");
	assert_string_equal(buf_str(&o.out), "hello\n");
	outcome_free(&o);
	peer_say(&f->peer, stream, WIRE_CREDIT, &(struct wire_credit){ .bytes = 1 });
	assert_int_equal(peer_next_on(&f->peer, stream), WIRE_DATA);
	assert_int_equal(f->peer.frame.length, 1);
	peer_say(&f->peer, stream, WIRE_CREDIT, &(struct wire_credit){ .bytes = PLENTY });
	assert_int_equal(receive(f, stream), 0);
	assert_in_range(f->got.len, 3000 * 150, 3000 * 300);
}

static void a_lost_connection_leaves_no_half_file_and_no_process(void **state)
{
	struct fixture *f = *state;
	struct wire_tree_put m = { .root = ".", .credit = PLENTY };
	struct stat st;

	for (int i = 0; i < 2; i++) {
		uint32_t stream = peer_ask(&f->peer, WIRE_TREE_PUT, &m);

		say_entry(f, TREE_DIR, "d", 0500, 0, NULL);
		say_entry(f, TREE_FILE, "d/half", 0644, 100, NULL);
		say(f, RECORD_CONTENT, "only this");
		send_said(f, stream, false);
		wait_until(fstatat(f->root, "d/half", &st, 0) == 0 && st.st_size == 9);
		if (i == 0) {
			peer_say(&f->peer, stream, WIRE_RESET, &(struct wire_reset){});
		} else {
			peer_close(&f->peer);
			assert_int_equal(peer_open(&f->peer, &f->rig, 2), 0);
			f->peer.last_stream = 0;
		}
		wait_until(fstatat(f->root, "d/half", &st, 0) < 0);
		wait_until(children(&f->rig) == 0);
		assert_int_equal(fstatat(f->root, "d", &st, 0), 0);
		assert_int_equal(st.st_mode & 07777, 0500);
	}
}

static void the_relays_death_ends_its_trees(void **state)
{
	struct fixture *f = *state;
	struct wire_tree_hash m = { .root = ".", .credit = PLENTY };
	uint32_t stream = peer_ask(&f->peer, WIRE_TREE_HASH, &m);
	pid_t child;

	place_a_huge_file(f, "huge");
	say(f, RECORD_PATH, "huge");
	send_said(f, stream, false);
	wait_until(children(&f->rig) == 1);
	child = only_child(&f->rig);
	kill(f->rig.pid, SIGKILL);
	assert_true(process_is_gone_soon(child));
}

/* Mistakes of the other side */

static void records_out_of_place_end_the_put(void **state)
{
	struct fixture *f = *state;

	say(f, RECORD_CONTENT, "of nothing");
	do_put(f, ".");
	assert_told(f, "protocol");
	say_entry(f, TREE_FILE, "a", 0644, 3, NULL);
	do_put(f, ".");
	assert_told(f, "protocol");
	say_entry(f, TREE_FILE, "a", 0644, 3, NULL);
	say(f, RECORD_CONTENT, "four");
	do_put(f, ".");
	assert_told(f, "protocol");
	say_entry(f, TREE_FILE, "a", 0644, 3, NULL);
	say_file(f, "b", "x");
	do_put(f, ".");
	assert_told(f, "protocol");
	say(f, RECORD_SKIP, "");
	do_put(f, ".");
	assert_told(f, "protocol");
	say(f, RECORD_ENTRY, "is ours to say");
	do_put(f, ".");
	assert_told(f, "protocol");
	say_entry(f, TREE_SPECIAL, "device", 0644, 0, NULL);
	do_put(f, ".");
	assert_told(f, "protocol");
	do_scan(f);
	assert_told(f, "ok");
}

static void paths_that_lead_out_are_refused(void **state)
{
	struct fixture *f = *state;
	static const char *const bad[] = { "../outside/x", "/etc/x", "a/../../outside/x", "..",
					   "." };

	write_text(f->out, "x", "canary");
	assert_int_equal(symlinkat("../outside", f->root, "link"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		say_file(f, bad[i], "mine");
		do_put(f, ".");
		assert_told(f, "protocol");
		say(f, RECORD_REMOVE, bad[i]);
		do_put(f, ".");
		assert_told(f, "protocol");
		say(f, RECORD_PATH, bad[i]);
		do_hash(f);
		assert_told(f, "protocol");
	}
	say_file(f, "link/x", "mine");
	do_put(f, ".");
	assert_told(f, "bad_path");
	say(f, RECORD_REMOVE, "link/x");
	do_put(f, ".");
	assert_told(f, "ok");
	say(f, RECORD_PATH, "link/x");
	do_hash(f);
	assert_told(f, "link/x ok");
	do_put(f, "../outside");
	assert_told(f, "bad_path");
	assert_text(f->out, "x", "canary");
}

static void garbage_ends_the_request_and_nothing_else(void **state)
{
	struct fixture *f = *state;
	struct wire_tree_put m = { .root = ".", .credit = PLENTY };
	uint32_t stream = peer_ask(&f->peer, WIRE_TREE_PUT, &m);

	peer_data(&f->peer, stream, "\xff\xff\xff\xff\xff garbage", 13, false);
	assert_int_equal(receive(f, stream), 0);
	assert_told(f, "protocol");
	do_scan(f);
	assert_told(f, "ok");
}

/* With a child that does not read, the pipe and the credit are all there is. */
static void more_than_the_credit_ends_the_session(void **state)
{
	struct fixture *f = *state;
	struct wire_tree_put m = { .root = ".", .credit = PLENTY };
	uint32_t stream = peer_ask(&f->peer, WIRE_TREE_PUT, &m);
	_cleanup_free_ char *data = xcalloc(1, 1000000);
	unsigned type = 0;
	pid_t child;

	/* It has closed the relay's descriptors before it makes anything. */
	say_entry(f, TREE_DIR, "d", 0755, 0, NULL);
	send_said(f, stream, false);
	wait_until(faccessat(f->root, "d", F_OK, 0) == 0);
	child = only_child(&f->rig);
	kill(child, SIGSTOP);
	assert_true(process_stops(child));
	for (int i = 0; i < 8; i++)
		frame_append(&f->peer.conn.out, WIRE_DATA, 0, stream, data, 1000000);
	peer_raw(&f->peer, "", 0);
	do
		type = peer_next(&f->peer);
	while (type && f->peer.frame.stream == stream);
	assert_int_equal(type, WIRE_ERROR);
	assert_int_equal(f->peer.m.error.code, WERR_PROTOCOL);
	kill(child, SIGCONT);
	wait_until(children(&f->rig) == 0);
}

static void so_many_trees_at_a_time(void **state)
{
	struct fixture *f = *state;
	struct wire_tree_hash m = { .root = ".", .credit = PLENTY };
	uint32_t first = 0, last = 0;

	for (int i = 0; i < 9; i++) {
		last = peer_ask(&f->peer, WIRE_TREE_HASH, &m);
		first = first ? first : last;
	}
	assert_int_equal(peer_next_on(&f->peer, last), WIRE_ERROR);
	assert_int_equal(f->peer.m.error.code, WERR_TOO_MANY);
	for (; first < last; first++)
		peer_say(&f->peer, first, WIRE_RESET, &(struct wire_reset){});
	do_hash(f);
	assert_told(f, "ok");
}

/* A disk that is full */

static void a_full_disk_is_told_and_leaves_the_old_file(void **state)
{
	struct fixture *f = *state;
	char path[96];
	_cleanup_free_ char *data = xmalloc(RECORD_MAX);

	snprintf(path, sizeof(path), "%s/small", f->rig.root);
	assert_int_equal(mkdir(path, 0755), 0);
	if (mount("none", path, "tmpfs", 0, "size=1m") < 0)
		skip();
	say_file(f, "a", "old");
	do_put(f, "small");
	assert_told(f, "a:0 ok");
	memset(data, 'x', RECORD_MAX);
	for (int i = 0; i < 2; i++) {
		say_entry(f, TREE_FILE, i ? "b" : "a", 0644, 8 * RECORD_MAX, NULL);
		for (int n = 0; n < 8; n++)
			wire_record_append(&f->say, RECORD_CONTENT, data, RECORD_MAX);
		do_put(f, "small");
		assert_told(f, "no_space");
		assert_non_null(strstr(f->failure, "the place's disk is full"));
	}
	assert_text(f->root, "small/a", "old");
	assert_int_equal(faccessat(f->root, "small/b", F_OK, 0), -1);
	assert_int_equal(umount(path), 0);
}

static int set_up_in_namespace(void **state)
{
	/* Mounts of this test are nobody else's. */
	if (unshare(CLONE_NEWNS) == 0)
		mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
	return set_up(state);
}

/* A payload that swaps directories */

struct swapper {
	struct fixture *f;
	pthread_t thread;
	atomic_bool stop;
	atomic_ulong swaps;
};

static void *swap_main(void *arg)
{
	struct swapper *s = arg;

	while (!atomic_load(&s->stop)) {
		syscall(SYS_renameat2, s->f->root, "d", s->f->root, "evil", 2u);
		atomic_fetch_add(&s->swaps, 1);
	}
	return NULL;
}

/* `d` is a directory now and a link to the outside then; both hold the same names. */
static void swap_start(struct swapper *s, struct fixture *f)
{
	*s = (struct swapper){ .f = f };
	for (int i = 0; i < 20; i++) {
		char name[32];

		snprintf(name, sizeof(name), "f%d", i);
		write_text(f->out, name, "canary");
	}
	write_text(f->out, "outside-only", "canary");
	assert_int_equal(mkdirat(f->out, "sub", 0755), 0);
	assert_int_equal(mkdirat(f->root, "d", 0755), 0);
	assert_int_equal(mkdirat(f->root, "d/sub", 0755), 0);
	assert_int_equal(symlinkat("../outside", f->root, "evil"), 0);
	assert_int_equal(pthread_create(&s->thread, NULL, swap_main, s), 0);
}

static void swap_stop(struct swapper *s)
{
	char name[32];

	atomic_store(&s->stop, true);
	pthread_join(s->thread, NULL);
	assert_true(atomic_load(&s->swaps) > 10);
	for (int i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		assert_text(s->f->out, name, "canary");
	}
	assert_text(s->f->out, "outside-only", "canary");
	assert_int_equal(faccessat(s->f->out, "new", F_OK, 0), -1);
	assert_int_equal(faccessat(s->f->out, "sub/new", F_OK, 0), -1);
	assert_int_equal(faccessat(s->f->out, "sub", F_OK, 0), 0);
}

static void a_payload_that_swaps_directories_leads_nothing_out(void **state)
{
	struct fixture *f = *state;
	struct wire_tree_get m = { .root = ".", .credit = PLENTY };
	int64_t until = test_now_ms() + 1500;
	struct swapper s;
	char name[32];

	swap_start(&s, f);
	while (test_now_ms() < until) {
		uint32_t stream;

		for (int i = 0; i < 20; i++) {
			snprintf(name, sizeof(name), "d/f%d", i);
			say_file(f, name, "mine");
		}
		say_file(f, "d/new", "mine");
		say_file(f, "d/sub/new", "mine");
		say(f, RECORD_REMOVE, "d/sub/new");
		for (int i = 0; i < 20; i += 3) {
			snprintf(name, sizeof(name), "d/f%d", i);
			say(f, RECORD_REMOVE, name);
		}
		do_put(f, ".");
		stream = peer_ask(&f->peer, WIRE_TREE_GET, &m);
		for (int i = 0; i < 20; i++) {
			snprintf(name, sizeof(name), "d/f%d", i);
			say(f, RECORD_PATH, name);
		}
		say(f, RECORD_PATH, "d/outside-only");
		say(f, RECORD_FINISH, "");
		send_said(f, stream, false);
		assert_int_equal(receive(f, stream), 0);
		assert_null(memmem(f->got.data, f->got.len, "canary", 6));
		do_scan(f);
		assert_null(memmem(f->got.data, f->got.len, "outside-only", 12));
	}
	swap_stop(&s);
}

int main(void)
{
#define plain(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
#define as_other(test) cmocka_unit_test_setup_teardown(test, set_up_other, tear_down)
	const struct CMUnitTest tests[] = {
		as_other(what_the_user_may_not_read_is_told),
		as_other(files_are_written_as_the_user),
		plain(a_file_that_replaces_keeps_no_name_of_its_own),
		plain(execs_and_pings_go_on_while_a_tree_is_hashed),
		plain(a_command_ends_although_a_tree_is_being_put),
		plain(a_tree_that_nobody_reads_holds_nothing_up),
		plain(a_lost_connection_leaves_no_half_file_and_no_process),
		plain(the_relays_death_ends_its_trees),
		plain(records_out_of_place_end_the_put),
		plain(paths_that_lead_out_are_refused),
		plain(garbage_ends_the_request_and_nothing_else),
		plain(more_than_the_credit_ends_the_session),
		plain(so_many_trees_at_a_time),
		plain(a_payload_that_swaps_directories_leads_nothing_out),
		cmocka_unit_test_setup_teardown(a_full_disk_is_told_and_leaves_the_old_file,
						set_up_in_namespace, tear_down),
	};

	return cmocka_run_group_tests_name("file_trees", tests, NULL, NULL);
}
