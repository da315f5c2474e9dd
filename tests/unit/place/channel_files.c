#include "execs.h"
#include <sys/socket.h>
#include <sys/un.h>
#include "place/files.h"
#include "wire/message.h"

struct files {
	struct execs *t;
	struct place_ref in;
	char root[96];
	int root_fd;
};

static int files_setup(void **state)
{
	struct files *f = calloc(1, sizeof(*f));
	struct exec_place place = place_with("dir-place", 1);
	void *t;

	assert_non_null(f);
	execs_setup(&t);
	f->t = t;
	snprintf(f->root, sizeof(f->root), "%s/root", f->t->dir->path);
	assert_int_equal(mkdir(f->root, 0755), 0);
	f->root_fd = open(f->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	place.root = f->root;
	assert_int_equal(places_open(f->t->places, &place, NULL), 0);
	f->in = (struct place_ref){ f->t->places, "dir-place", 1 };
	*state = f;
	return 0;
}

static int files_teardown(void **state)
{
	struct files *f = *state;
	void *t = f->t;

	close(f->root_fd);
	free(f);
	return execs_teardown(&t);
}

#define with_files(test) cmocka_unit_test_setup_teardown(test, files_setup, files_teardown)

static void put(struct files *f, const char *path, const void *data, size_t len, uint32_t mode)
{
	struct file_write_options options = { .mode = mode };
	struct file_writer *writer;
	struct file_info info;
	struct error err = { 0 };

	if (place_file_create(&f->in, path, &options, &writer, &err) < 0 ||
	    file_writer_append(writer, data, len, &err) < 0)
		fail_msg("%s", err.message);
	if (file_writer_commit(writer, &info, &err) < 0)
		fail_msg("%s", err.message);
	assert_int_equal(info.size, len);
	assert_string_equal(info.path, path);
	file_info_clear(&info);
}

/* The code of the refusal of a write, wherever it comes. */
static enum error_code put_refused(struct files *f, const char *path, bool no_clobber)
{
	struct file_write_options options = { .no_clobber = no_clobber };
	_cleanup_error_ struct error err = { 0 };
	struct file_writer *writer;
	struct file_info info;

	if (place_file_create(&f->in, path, &options, &writer, &err) < 0)
		return err.code;
	if (file_writer_append(writer, "x", 1, &err) < 0) {
		file_writer_abandon(writer);
		return err.code;
	}
	assert_int_equal(file_writer_commit(writer, &info, &err), -1);
	return err.code;
}

static int get(const struct place_ref *in, const char *path, int64_t offset, int64_t length,
	       struct buf *out, struct error *err)
{
	struct file_reader *reader;
	struct file_info info;
	char piece[70000];
	ssize_t n;

	if (place_file_open(in, path, offset, length, &info, &reader, err) < 0)
		return -1;
	file_info_clear(&info);
	while ((n = file_reader_next(reader, piece, sizeof(piece), err)) > 0)
		buf_append(out, piece, (size_t)n);
	file_reader_close(reader);
	return (int)n;
}

static enum error_code get_refused(struct files *f, const char *path)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_buf_ struct buf out = { 0 };

	assert_int_equal(get(&f->in, path, 0, -1, &out, &err), -1);
	return err.code;
}

static void what_is_written_is_read_again(void **state)
{
	struct files *f = *state;
	size_t len = 3000017;
	_cleanup_free_ char *data = xmalloc(len);
	_cleanup_buf_ struct buf whole = { 0 }, part = { 0 }, none = { 0 }, rest = { 0 };
	struct file_info info;

	for (size_t i = 0; i < len; i++)
		data[i] = (char)(i * 2654435761u >> 13);
	put(f, "/file", data, len, 0640);
	assert_int_equal(get(&f->in, "file", 0, -1, &whole, NULL), 0);
	assert_int_equal(whole.len, len);
	assert_memory_equal(whole.data, data, len);
	assert_int_equal(get(&f->in, "file", 1000, 70001, &part, NULL), 0);
	assert_int_equal(part.len, 70001);
	assert_memory_equal(part.data, data + 1000, part.len);
	assert_int_equal(get(&f->in, "file", 5, 0, &none, NULL), 0);
	assert_int_equal(none.len, 0);
	assert_int_equal(get(&f->in, "file", (int64_t)len - 3, 100, &rest, NULL), 0);
	assert_int_equal(rest.len, 3);
	assert_int_equal(place_file_stat(&f->in, "file", &info, NULL), 0);
	assert_string_equal(info.type, "file");
	assert_int_equal(info.mode, 0640);
	assert_int_equal(info.size, len);
	file_info_clear(&info);
	/* Replacing keeps the mode. */
	put(f, "file", "new", 3, 0);
	assert_int_equal(place_file_stat(&f->in, "file", &info, NULL), 0);
	assert_int_equal(info.mode, 0640);
	assert_int_equal(info.size, 3);
	file_info_clear(&info);
}

static void nothing_is_seen_before_a_writer_commits(void **state)
{
	struct files *f = *state;
	struct file_write_options options = { 0 };
	struct file_writer *writer;
	_cleanup_json_ json_t *page = NULL;

	assert_int_equal(place_file_create(&f->in, "later", &options, &writer, NULL), 0);
	assert_int_equal(file_writer_append(writer, "abc", 3, NULL), 0);
	page = place_file_list(&f->in, "/", NULL, 0, NULL);
	assert_int_equal(json_array_size(json_array_at(page, "entries")), 0);
	file_writer_abandon(writer);
	assert_false(exists_at(f->root_fd, "later"));
}

static void an_existing_file_is_not_clobbered_when_asked(void **state)
{
	struct files *f = *state;

	put(f, "taken", "old", 3, 0);
	assert_int_equal(put_refused(f, "taken", true), ERR_CONFLICT);
	assert_int_equal(place_file_mkdir(&f->in, "dir", 0, false, NULL), 0);
	assert_int_equal(put_refused(f, "dir", false), ERR_UNPROCESSABLE);
	assert_int_equal(put_refused(f, "no/such/dir", false), ERR_NOT_FOUND);
}

static void a_refused_large_write_ends_with_its_reason(void **state)
{
	struct files *f = *state;
	struct file_write_options options = { 0 };
	_cleanup_error_ struct error err = { 0 };
	_cleanup_free_ char *data = xcalloc(1, 1 << 20);
	struct file_writer *writer;

	assert_int_equal(place_file_create(&f->in, "no/such/dir", &options, &writer, &err), 0);
	assert_int_equal(file_writer_append(writer, data, 1 << 20, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
	file_writer_abandon(writer);
}

static void no_path_leaves_the_root(void **state)
{
	struct files *f = *state;
	struct file_info info;
	_cleanup_error_ struct error err = { 0 };

	write_file_at(f->t->dir->fd, "secret", "outside", 0644);
	assert_int_equal(symlinkat("../secret", f->root_fd, "relative"), 0);
	assert_int_equal(symlinkat("/etc/passwd", f->root_fd, "absolute"), 0);
	assert_int_equal(symlinkat("/proc/self/root", f->root_fd, "magic"), 0);
	assert_int_equal(symlinkat("..", f->root_fd, "up"), 0);
	assert_int_equal(get_refused(f, "../secret"), ERR_BAD_PATH);
	assert_int_equal(get_refused(f, "/../secret"), ERR_BAD_PATH);
	assert_int_equal(get_refused(f, "relative"), ERR_BAD_PATH);
	assert_int_equal(get_refused(f, "absolute"), ERR_BAD_PATH);
	assert_int_equal(get_refused(f, "magic/etc/passwd"), ERR_BAD_PATH);
	assert_int_equal(get_refused(f, "up/secret"), ERR_BAD_PATH);
	assert_int_equal(put_refused(f, "up/made", false), ERR_BAD_PATH);
	assert_int_equal(put_refused(f, "../made", false), ERR_BAD_PATH);
	assert_int_equal(place_file_mkdir(&f->in, "up/dir", 0, false, NULL), -1);
	assert_int_equal(place_file_remove(&f->in, "up/secret", true, NULL), -1);
	assert_int_equal(place_file_rename(&f->in, "relative", "../moved", false, NULL), -1);
	assert_int_equal(place_file_chmod(&f->in, "relative", 0777, &err), -1);
	assert_int_equal(err.code, ERR_BAD_PATH);
	assert_false(exists_at(f->t->dir->fd, "made") || exists_at(f->t->dir->fd, "dir"));
	assert_true(exists_at(f->t->dir->fd, "secret"));
	/* The link itself can be looked at. */
	assert_int_equal(place_file_stat(&f->in, "relative", &info, NULL), 0);
	assert_string_equal(info.type, "symlink");
	assert_string_equal(info.target, "../secret");
	file_info_clear(&info);
}

static void what_is_no_file_is_told_and_never_waited_for(void **state)
{
	struct files *f = *state;
	struct file_info info;

	assert_int_equal(mkfifoat(f->root_fd, "fifo", 0600), 0);
	assert_int_equal(place_file_stat(&f->in, "fifo", &info, NULL), 0);
	assert_string_equal(info.type, "fifo");
	file_info_clear(&info);
	assert_int_equal(get_refused(f, "fifo"), ERR_UNPROCESSABLE);
	assert_int_equal(put_refused(f, "fifo", false), ERR_UNPROCESSABLE);
	assert_int_equal(get_refused(f, "/"), ERR_UNPROCESSABLE);
	assert_int_equal(get_refused(f, "absent"), ERR_NOT_FOUND);
}

static void directories_are_listed_in_pages(void **state)
{
	enum { MANY = 250 };
	struct files *f = *state;
	_cleanup_free_ char *cursor = NULL;
	bool seen[MANY] = { false };
	int pages = 0, count = 0;

	assert_int_equal(place_file_mkdir(&f->in, "a/b/c", 0700, true, NULL), 0);
	for (int i = 0; i < MANY; i++) {
		char name[32];

		snprintf(name, sizeof(name), "root/a/b/c/%d", i);
		write_file_at(f->t->dir->fd, name, "", 0600);
	}
	do {
		_cleanup_json_ json_t *page = place_file_list(&f->in, "a/b/c/", cursor, 100, NULL);
		json_t *entries = json_array_at(page, "entries");

		assert_non_null(page);
		assert_true(json_array_size(entries) <= 100);
		for (size_t i = 0; i < json_array_size(entries); i++) {
			int n = atoi(json_str(json_array_get(entries, i), "path"));

			assert_false(seen[n]);
			seen[n] = true;
			count++;
		}
		free(cursor);
		cursor = xstrdup(json_str(page, "nextCursor"));
		pages++;
	} while (cursor);
	assert_int_equal(count, MANY);
	assert_true(pages >= 3);
	assert_null(place_file_list(&f->in, "a", "garbage", 10, NULL));
}

static void files_are_renamed_removed_and_given_modes(void **state)
{
	struct files *f = *state;
	_cleanup_error_ struct error err = { 0 };
	struct file_info info;

	put(f, "one", "1", 1, 0600);
	put(f, "two", "2", 1, 0600);
	assert_int_equal(place_file_rename(&f->in, "one", "two", true, &err), -1);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_int_equal(place_file_rename(&f->in, "one", "two", false, NULL), 0);
	assert_false(exists_at(f->root_fd, "one"));
	assert_int_equal(place_file_chmod(&f->in, "two", 0751, NULL), 0);
	assert_int_equal(place_file_stat(&f->in, "two", &info, NULL), 0);
	assert_int_equal(info.mode, 0751);
	file_info_clear(&info);
	assert_int_equal(place_file_chmod(&f->in, "two", 070000, &err), -1);
	assert_int_equal(err.code, ERR_VALIDATION);
	assert_int_equal(place_file_mkdir(&f->in, "d/e", 0, true, NULL), 0);
	assert_int_equal(place_file_remove(&f->in, "d", false, &err), -1);
	assert_int_equal(err.code, ERR_CONFLICT);
	assert_int_equal(place_file_remove(&f->in, "d", true, NULL), 0);
	assert_false(exists_at(f->root_fd, "d"));
	assert_int_equal(place_file_remove(&f->in, "d", true, &err), -1);
	assert_int_equal(err.code, ERR_NOT_FOUND);
}

static void a_place_that_is_the_host_takes_absolute_paths(void **state)
{
	struct files *f = *state;
	struct place_ref host = { f->t->places, PLACE, GENERATION };
	_cleanup_buf_ struct buf out = { 0 };
	char path[128];

	write_file_at(f->t->dir->fd, "on-host", "yes", 0600);
	snprintf(path, sizeof(path), "%s/on-host", f->t->dir->path);
	assert_int_equal(get(&host, path, 0, -1, &out, NULL), 0);
	assert_string_equal(buf_str(&out), "yes");
	buf_reset(&out);
	assert_int_equal(get(&host, path + 1, 0, -1, &out, NULL), 0);
	assert_string_equal(buf_str(&out), "yes");
}

static void files_need_an_open_place_and_the_right_generation(void **state)
{
	struct files *f = *state;
	_cleanup_error_ struct error err = { 0 };
	struct place_ref stale = { f->t->places, "dir-place", 0 };
	struct file_info info;

	assert_int_equal(place_file_stat(&stale, "/", &info, &err), -1);
	assert_int_equal(err.code, ERR_STALE_GENERATION);
	stale.place_id = "unknown";
	assert_int_equal(place_file_stat(&stale, "/", &info, &err), -1);
	assert_int_equal(err.code, ERR_LEASE_ENDED);
}

static void a_reader_that_stops_holds_up_nobody(void **state)
{
	struct files *f = *state;
	size_t len = 8 << 20;
	_cleanup_free_ char *data = xcalloc(1, len);
	struct file_reader *slow;
	struct file_info info;
	char byte;

	put(f, "big", data, len, 0);
	assert_int_equal(place_file_open(&f->in, "big", 0, -1, &info, &slow, NULL), 0);
	file_info_clear(&info);
	assert_int_equal(file_reader_next(slow, &byte, 1, NULL), 1);
	for (int i = 0; i < 20; i++) {
		_cleanup_buf_ struct buf out = { 0 };

		assert_int_equal(get(&f->in, "big", 0, 100000, &out, NULL), 0);
		assert_int_equal(out.len, 100000);
	}
	file_reader_close(slow);
}

/* Their data is bounded by its credit, and is no reason to refuse the next one. */
static void many_writers_at_once_are_all_served(void **state)
{
	enum { WRITERS = 32 };
	struct files *f = *state;
	const size_t len = WIRE_WRITE_CREDIT;
	_cleanup_free_ char *data = xcalloc(1, len);
	struct file_write_options options = { 0 };
	struct file_writer *writers[WRITERS];
	struct error err = { 0 };
	pid_t relay;

	put(f, "first", data, 1, 0);
	relay = relay_pid(f->t, "dir-place");
	assert_int_equal(kill(relay, SIGSTOP), 0);
	for (int i = 0; i < WRITERS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "w%d", i);
		if (place_file_create(&f->in, name, &options, &writers[i], &err) < 0 ||
		    file_writer_append(writers[i], data, len, &err) < 0)
			fail_msg("%s: %s", name, err.message);
	}
	assert_int_equal(kill(relay, SIGCONT), 0);
	for (int i = 0; i < WRITERS; i++) {
		struct file_info info;

		assert_int_equal(file_writer_commit(writers[i], &info, NULL), 0);
		assert_int_equal(info.size, len);
		file_info_clear(&info);
	}
}

static void commands_start_in_the_place(void **state)
{
	struct files *f = *state;
	struct going g;
	char want[128];

	prepare(f->t, &g, SHELL_COMMAND("pwd"));
	g.spec.place_id = "dir-place";
	g.spec.generation = 1;
	g.spec.cwd = NULL;
	run(f->t, &g);
	snprintf(want, sizeof(want), "%s\n", f->root);
	expect_output(f->t, &g, RUNLOG_STDOUT, want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_files(what_is_written_is_read_again),
		with_files(nothing_is_seen_before_a_writer_commits),
		with_files(an_existing_file_is_not_clobbered_when_asked),
		with_files(a_refused_large_write_ends_with_its_reason),
		with_files(no_path_leaves_the_root),
		with_files(what_is_no_file_is_told_and_never_waited_for),
		with_files(directories_are_listed_in_pages),
		with_files(files_are_renamed_removed_and_given_modes),
		with_files(a_place_that_is_the_host_takes_absolute_paths),
		with_files(files_need_an_open_place_and_the_right_generation),
		with_files(a_reader_that_stops_holds_up_nobody),
		with_files(many_writers_at_once_are_all_served),
		with_files(commands_start_in_the_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
