#include "cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fd.h"

static const char *const COLUMNS[] = { "ID=id", "NAME=name", "DRIVER=config.driver", NULL };

/* What `print` writes to standard output. */
#define PRINTED(print)                                                                             \
	({                                                                                         \
		struct catcher catcher_ = catch_output();                                          \
		print;                                                                             \
		caught(&catcher_);                                                                 \
	})

struct catcher {
	int saved, memory;
};

static struct catcher catch_output(void)
{
	struct catcher c;

	fflush(stdout);
	c.saved = dup(STDOUT_FILENO);
	c.memory = memfd_create("output", MFD_CLOEXEC);
	assert_true(c.saved >= 0 && c.memory >= 0);
	dup2(c.memory, STDOUT_FILENO);
	return c;
}

static char *caught(struct catcher *c)
{
	struct buf text = { 0 };

	fflush(stdout);
	dup2(c->saved, STDOUT_FILENO);
	close(c->saved);
	lseek(c->memory, 0, SEEK_SET);
	assert_int_equal(fd_read_all(c->memory, &text, 1 << 20, NULL), 0);
	close(c->memory);
	buf_str(&text);
	return buf_steal(&text);
}

static json_t *parsed(const char *text)
{
	json_t *value = json_parse(text, strlen(text), NULL);

	assert_non_null(value);
	return value;
}

static void columns_are_as_wide_as_their_widest_cell(void **state)
{
	_cleanup_json_ json_t *rows =
		parsed("[{\"id\":\"1\",\"name\":\"a long name\",\"config\":{\"driver\":\"local\"}},"
		       "{\"id\":\"12345\",\"name\":\"b\",\"config\":{\"driver\":\"sandbox\"}}]");
	_cleanup_free_ char *text = PRINTED(print_table(rows, COLUMNS));

	(void)state;
	assert_string_equal(text, "ID     NAME         DRIVER\n"
				  "1      a long name  local\n"
				  "12345  b            sandbox\n");
}

static void what_is_absent_or_null_is_a_dash(void **state)
{
	_cleanup_json_ json_t *rows =
		parsed("[{\"id\":null,\"name\":\"x\"},{\"name\":7,\"config\":\"text\"},{}]");
	_cleanup_free_ char *text = PRINTED(print_table(rows, COLUMNS));

	(void)state;
	assert_string_equal(text, "ID  NAME  DRIVER\n"
				  "-   x     -\n"
				  "-   7     -\n"
				  "-   -     -\n");
}

static void an_empty_table_still_has_its_heading(void **state)
{
	_cleanup_json_ json_t *rows = parsed("[]");
	_cleanup_free_ char *text = PRINTED(print_table(rows, COLUMNS));

	(void)state;
	assert_string_equal(text, "ID  NAME  DRIVER\n");
}

static void a_very_long_cell_does_not_push_the_others_away(void **state)
{
	_cleanup_json_ json_t *rows = json_array();
	_cleanup_free_ char *text = NULL;
	char name[201];

	(void)state;
	memset(name, 'n', 200);
	name[200] = 0;
	json_array_append_new(rows, json_pack("{s:s, s:s}", "id", "1", "name", name));
	json_array_append_new(rows, json_pack("{s:s, s:s}", "id", "2", "name", "short"));
	text = PRINTED(print_table(rows, COLUMNS));

	const char *last = strstr(text, "short");

	assert_non_null(last);
	assert_int_equal(strcspn(last, "\n"), 60 + 2 + 1);
	assert_non_null(strstr(text, name));
}

static void an_array_is_its_words(void **state)
{
	static const char *const COMMAND[] = { "COMMAND=command", NULL };
	_cleanup_json_ json_t *rows = parsed("[{\"command\":[\"ls\",\"-l\",3]}]");
	_cleanup_free_ char *text = PRINTED(print_table(rows, COMMAND));

	(void)state;
	assert_string_equal(text, "COMMAND\nls -l 3\n");
}

static void a_terminal_does_not_obey_names(void **state)
{
	static const char *const NAME[] = { "NAME=name", NULL };
	_cleanup_json_ json_t *rows =
		parsed("[{\"name\":\"\\u001b[2Jx\\ny\\u007f\\u0007 \\u00e9\"}]");
	_cleanup_free_ char *table = PRINTED(print_table(rows, NAME));
	_cleanup_free_ char *fields = PRINTED(print_fields(json_array_get(rows, 0), NAME));

	(void)state;
	assert_string_equal(table, "NAME\n\\x1b[2Jx\\x0ay\\x7f\\x07 \xc3\xa9\n");
	assert_string_equal(fields, "NAME           \\x1b[2Jx\\x0ay\\x7f\\x07 \xc3\xa9\n");
}

static void fields_are_one_a_line(void **state)
{
	_cleanup_json_ json_t *one =
		parsed("{\"id\":\"1\",\"name\":null,\"config\":{\"driver\":\"local\"}}");
	_cleanup_free_ char *text = PRINTED(print_fields(one, COLUMNS));

	(void)state;
	assert_string_equal(text, "ID             1\n"
				  "NAME           -\n"
				  "DRIVER         local\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
		cmocka_unit_test(what_is_absent_or_null_is_a_dash),
		cmocka_unit_test(an_empty_table_still_has_its_heading),
		cmocka_unit_test(a_very_long_cell_does_not_push_the_others_away),
		cmocka_unit_test(an_array_is_its_words),
		cmocka_unit_test(a_terminal_does_not_obey_names),
		cmocka_unit_test(fields_are_one_a_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
