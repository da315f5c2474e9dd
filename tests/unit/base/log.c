#include "tempdir.h"
#include <errno.h>
#include <sys/mman.h>
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

static int saved_stderr, captured;

static int capture_start(void **state)
{
	(void)state;
	saved_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	captured = memfd_create("log", MFD_CLOEXEC);
	assert_true(saved_stderr >= 0 && captured >= 0);
	dup2(captured, STDERR_FILENO);
	return 0;
}

static int capture_end(void **state)
{
	(void)state;
	log_set_level(LOG_INFO_);
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(captured);
	return 0;
}

static char *captured_text(void)
{
	struct buf b = { 0 };

	lseek(captured, 0, SEEK_SET);
	assert_int_equal(fd_read_all(captured, &b, 1 << 20, NULL), 0);
	return buf_steal(&b);
}

static void a_line_has_time_level_and_message(void **state)
{
	(void)state;
	log_warn("lease=%s ended", "abc");

	_cleanup_free_ char *text = captured_text();
	char when[25] = "";
	int64_t ms;

	memcpy(when, text, 24);
	assert_int_equal(time_parse_iso(when, &ms), 0);
	assert_string_equal(text + 24, " warn  lease=abc ended\n");
}

static void lines_below_the_level_are_not_written(void **state)
{
	(void)state;
	log_debug("not by default");
	log_set_level(LOG_ERROR_);
	log_warn("neither");
	log_set_level(LOG_DEBUG_);
	log_debug("but now");

	_cleanup_free_ char *text = captured_text();

	assert_string_equal(text + 24, " debug but now\n");
}

static void a_hostile_string_cannot_forge_a_line_or_drive_the_terminal(void **state)
{
	(void)state;
	log_info("%s", "a\nb\r\t\x1b[2J\x7f\xc2\x9b"
		       "1m\x9b"
		       "2m \xc3\xa4\xe2\x82\xac \xff");

	_cleanup_free_ char *text = captured_text();

	assert_string_equal(text + 24, " info  a\\nb\\r\\t\\x1b[2J\\x7f\\x9b1m\\x9b2m "
				       "\xc3\xa4\xe2\x82\xac \\xff\n");
}

static void a_long_message_is_cut_and_still_one_line(void **state)
{
	(void)state;
	char long_text[10000];

	memset(long_text, '\1', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	log_info("%s", long_text);

	_cleanup_free_ char *text = captured_text();

	assert_true(str_ends(text, "\\x01...\n"));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void logging_leaves_errno_alone(void **state)
{
	(void)state;
	close(STDERR_FILENO);
	errno = ENOENT;
	log_error("nobody reads this");
	assert_int_equal(errno, ENOENT);
}

static void as_json_a_line_is_one_object_whatever_is_in_it(void **state)
{
	(void)state;
	log_set_format(LOG_JSON);
	log_set_request("req-1");
	log_with(LOG_WARN_, "odd \"quote\" \\ and \n \xff", LOG_TEXT_FIELD("path", "/a b\x1b"),
		 LOG_INT_FIELD("ms", 12));
	log_set_request(NULL);
	log_set_format(LOG_TEXT);

	_cleanup_free_ char *text = captured_text();
	_cleanup_json_ json_t *line = json_parse(text, strlen(text), NULL);
	int64_t ms;

	assert_non_null(line);
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	assert_int_equal(time_parse_iso(json_str(line, "time"), &ms), 0);
	assert_string_equal(json_str(line, "level"), "warn");
	assert_string_equal(json_str(line, "message"), "odd \"quote\" \\ and \n \xc3\xbf");
	assert_string_equal(json_str(line, "requestId"), "req-1");
	assert_string_equal(json_str(line, "path"), "/a b\x1b");
	assert_int_equal(json_int(line, "ms", 0), 12);
}

static void fields_of_text_lines_cannot_look_like_others(void **state)
{
	(void)state;
	log_set_request("req-2");
	log_with(LOG_INFO_, "request", LOG_TEXT_FIELD("path", "/x"),
		 LOG_TEXT_FIELD("agent", "a status=200 \"b"), LOG_INT_FIELD("status", 404));
	log_set_request(NULL);

	_cleanup_free_ char *text = captured_text();

	assert_string_equal(text + 24, " info  request path=/x agent=\"a status=200 \\\"b\" "
				       "status=404 request=req-2\n");
}

static void the_file_is_made_anew_after_it_was_moved_away(void **state)
{
	_cleanup_buf_ struct buf old = { 0 }, new = { 0 };
	(void)state;
	char dir[] = "/tmp/berth-log-XXXXXX";

	assert_non_null(mkdtemp(dir));

	_cleanup_free_ char *path = xasprintf("%s/log", dir), *moved = xasprintf("%s/log.1", dir);

	assert_int_equal(log_to_file(path), 0);
	log_info("first");
	assert_int_equal(rename(path, moved), 0);
	log_info("second");
	assert_int_equal(log_reopen(), 0);
	log_info("third");

	int old_fd = open(moved, O_RDONLY | O_CLOEXEC), new_fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(fd_read_all(old_fd, &old, 1 << 20, NULL), 0);
	assert_int_equal(fd_read_all(new_fd, &new, 1 << 20, NULL), 0);
	close(old_fd);
	close(new_fd);
	assert_non_null(strstr(buf_str(&old), "first\n"));
	assert_non_null(strstr(buf_str(&old), "second\n"));
	assert_string_equal(buf_str(&new) + 24, " info  third\n");
	assert_true(log_to_file("/nonexistent/dir/log") < 0);
	unlink(path);
	unlink(moved);
	rmdir(dir);
}

#define with_capture(test) cmocka_unit_test_setup_teardown(test, capture_start, capture_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		with_capture(a_line_has_time_level_and_message),
		with_capture(lines_below_the_level_are_not_written),
		with_capture(a_hostile_string_cannot_forge_a_line_or_drive_the_terminal),
		with_capture(a_long_message_is_cut_and_still_one_line),
		with_capture(as_json_a_line_is_one_object_whatever_is_in_it),
		with_capture(fields_of_text_lines_cannot_look_like_others),
		with_capture(logging_leaves_errno_alone),
		/* last: lines go to its file from there on */
		cmocka_unit_test(the_file_is_made_anew_after_it_was_moved_away),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
