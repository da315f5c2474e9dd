#include "cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#define WORDS_MAX 1000

static const struct flag FLAGS[] = {
	{ "env", 0, "NAME", "a value", false },
	{ "set", 'e', "K=V", "a value that may repeat", true },
	{ "detach", 'd', NULL, "a switch", false },
	{ "timeout", 0, "TIME", "a duration", false },
	{ "limit", 0, "N", "a number", false },
	{ 0 },
};
static const struct verb PLAIN = {
	.name = "show", .arguments = "NAME", .flags = FLAGS, .min_args = 1, .max_args = 2
};
static const struct verb WITH_COMMAND = {
	.name = "run", .arguments = "-- CMD...", .flags = FLAGS, .takes_command = true
};
static const struct verb WITH_BOTH = { .name = "exec",
				       .arguments = "LEASE -- CMD...",
				       .flags = FLAGS,
				       .min_args = 1,
				       .max_args = 1,
				       .takes_command = true };

struct parsed {
	char *argv[WORDS_MAX + 1]; /* what args points into */
	struct args args;
	struct error err;
	int result;
};

static void parse(struct parsed *p, const struct verb *verb, const char *const *words)
{
	int argc = 0;

	*p = (struct parsed){ 0 };
	for (; words[argc] && argc < WORDS_MAX; argc++)
		p->argv[argc] = (char *)words[argc];
	p->result = args_parse(&p->args, verb, argc, p->argv, &p->err);
}
#define PARSE(p, verb, ...) parse(p, verb, (const char *const[]){ __VA_ARGS__, NULL })

static void assert_refused(const struct parsed *p, const char *word)
{
	assert_true(p->result < 0);
	assert_int_equal(p->err.code, ERR_BAD_REQUEST);
	if (!strstr(p->err.message, word))
		fail_msg("\"%s\" does not speak of %s", p->err.message, word);
}

static void flags_and_positionals_may_stand_in_any_order(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, &PLAIN, "--env", "box", "one", "-d", "two", "--json");
	assert_int_equal(p.result, 0);
	assert_int_equal(p.args.positionals, 2);
	assert_string_equal(p.args.positional[0], "one");
	assert_string_equal(p.args.positional[1], "two");
	assert_string_equal(args_value(&p.args, "env"), "box");
	assert_true(args_has(&p.args, "detach"));
	assert_true(args_has(&p.args, "json"));
	assert_false(args_has(&p.args, "quiet"));
	assert_null(args_value(&p.args, "timeout"));
	assert_null(p.args.command);
}

static void a_value_follows_its_flag_or_an_equals_sign_or_the_letter(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, &PLAIN, "x", "--env=a=b", "-e", "ONE=1", "-eTWO=2", "--set=THREE=");
	assert_int_equal(p.result, 0);
	assert_string_equal(args_value(&p.args, "env"), "a=b");
	assert_string_equal(args_nth(&p.args, "set", 0), "ONE=1");
	assert_string_equal(args_nth(&p.args, "set", 1), "TWO=2");
	assert_string_equal(args_nth(&p.args, "set", 2), "THREE=");
	assert_null(args_nth(&p.args, "set", 3));
	PARSE(&p, &PLAIN, "x", "--env=");
	assert_int_equal(p.result, 0);
	assert_string_equal(args_value(&p.args, "env"), "");
}

static void a_value_may_look_like_a_flag(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, &PLAIN, "x", "--env", "--detach");
	assert_int_equal(p.result, 0);
	assert_string_equal(args_value(&p.args, "env"), "--detach");
	assert_false(args_has(&p.args, "detach"));
}

static void what_is_not_understood_is_refused(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, &PLAIN, "x", "--nonsense");
	assert_refused(&p, "--nonsense");
	PARSE(&p, &PLAIN, "x", "-z");
	assert_refused(&p, "-z");
	/* Switches may be run together, and a mistyped one among them is still told. */
	PARSE(&p, &PLAIN, "x", "-dz");
	assert_refused(&p, "-dz");
	/* No flag is known by its beginning, or a new one would change what scripts mean. */
	PARSE(&p, &PLAIN, "x", "--detac");
	assert_refused(&p, "--detac");
	PARSE(&p, &PLAIN, "x", "--detach=yes");
	assert_refused(&p, "--detach");
	PARSE(&p, &PLAIN, "x", "--env");
	assert_refused(&p, "--env");
	PARSE(&p, &PLAIN, "x", "--env", "a", "--env", "b");
	assert_refused(&p, "twice");
}

static void too_few_and_too_many_words_are_refused(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, &PLAIN, "-d");
	assert_refused(&p, "NAME");
	PARSE(&p, &PLAIN, "one", "two", "three");
	assert_refused(&p, "three");
	PARSE(&p, &PLAIN, "one", "--", "two");
	assert_refused(&p, "takes no command");
	PARSE(&p, &WITH_COMMAND, "-d");
	assert_refused(&p, "command");
	PARSE(&p, &WITH_COMMAND, "-d", "--");
	assert_refused(&p, "command");
	PARSE(&p, &WITH_BOTH, "--", "ls");
	assert_refused(&p, "LEASE");
}

static void help_needs_nothing_else(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, &PLAIN, "--help");
	assert_int_equal(p.result, 0);
	PARSE(&p, &WITH_BOTH, "-h");
	assert_int_equal(p.result, 0);
	assert_true(args_has(&p.args, "help"));
}

static void the_command_keeps_every_word_of_its_own(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, &WITH_COMMAND, "-d", "--", "ls", "-l", "--", "--env", "");
	assert_int_equal(p.result, 0);
	assert_string_equal(p.args.command[0], "ls");
	assert_string_equal(p.args.command[1], "-l");
	assert_string_equal(p.args.command[2], "--");
	assert_string_equal(p.args.command[3], "--env");
	assert_string_equal(p.args.command[4], "");
	assert_null(p.args.command[5]);
	assert_false(args_has(&p.args, "env"));
}

static void the_first_word_that_is_no_flag_begins_the_command(void **state)
{
	struct parsed p;

	(void)state;
	PARSE(&p, &WITH_COMMAND, "--env", "box", "ls", "--json", "-d");
	assert_int_equal(p.result, 0);
	assert_string_equal(p.args.command[0], "ls");
	assert_string_equal(p.args.command[1], "--json");
	assert_false(args_has(&p.args, "json"));
	assert_false(args_has(&p.args, "detach"));
	PARSE(&p, &WITH_BOTH, "lease", "-d", "ls", "-l");
	assert_int_equal(p.result, 0);
	assert_string_equal(p.args.positional[0], "lease");
	assert_true(args_has(&p.args, "detach"));
	assert_string_equal(p.args.command[0], "ls");
	/* A dash alone is a word. */
	PARSE(&p, &WITH_COMMAND, "-", "x");
	assert_int_equal(p.result, 0);
	assert_string_equal(p.args.command[0], "-");
}

static void there_is_a_bound_on_flags(void **state)
{
	const char *words[2 * (ARGS_MAX_FLAGS + 1) + 2] = { 0 };
	struct parsed p;

	(void)state;
	words[0] = "x";
	for (size_t i = 0; i < ARGS_MAX_FLAGS; i++) {
		words[1 + 2 * i] = "-e";
		words[2 + 2 * i] = "A=b";
	}
	parse(&p, &PLAIN, words);
	assert_int_equal(p.result, 0);
	words[1 + 2 * ARGS_MAX_FLAGS] = "-d";
	parse(&p, &PLAIN, words);
	assert_refused(&p, "too many");
}

static void numbers_and_durations_are_checked(void **state)
{
	struct parsed p;
	int64_t value = 7;
	int said = dup(STDERR_FILENO);

	(void)state;
	PARSE(&p, &PLAIN, "x", "--limit", "20", "--timeout", "1.5s");
	assert_true(args_int(&p.args, "limit", 1, 20, &value));
	assert_int_equal(value, 20);
	value = 7;
	PARSE(&p, &PLAIN, "x");
	assert_true(args_int(&p.args, "limit", 1, 20, &value));
	assert_true(args_duration_ms(&p.args, "timeout", &value));
	assert_int_equal(value, 7);
	PARSE(&p, &PLAIN, "x", "--timeout", "10m");
	assert_true(args_duration_ms(&p.args, "timeout", &value));
	assert_int_equal(value, 600000);

	static const char *const BAD_NUMBERS[] = { "0", "21",  "-1", "2x",
						   "",  "1.0", " 1", "99999999999999999999" };
	static const char *const BAD_TIMES[] = { "0", "0s", "-1s", "soon", "", "1 fortnight" };

	assert_true(freopen("/dev/null", "w", stderr));
	for (size_t i = 0; i < ARRAY_SIZE(BAD_NUMBERS); i++) {
		PARSE(&p, &PLAIN, "x", "--limit", BAD_NUMBERS[i]);
		if (args_int(&p.args, "limit", 1, 20, &value))
			fail_msg("\"%s\" was taken for a number", BAD_NUMBERS[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(BAD_TIMES); i++) {
		PARSE(&p, &PLAIN, "x", "--timeout", BAD_TIMES[i]);
		if (args_duration_ms(&p.args, "timeout", &value))
			fail_msg("\"%s\" was taken for a time", BAD_TIMES[i]);
	}
	fflush(stderr);
	dup2(said, STDERR_FILENO);
	close(said);
}

static void every_verb_is_found_under_a_name_of_its_own(void **state)
{
	const struct verb **verbs = verbs_in_order();

	(void)state;
	assert_non_null(verbs[0]);
	assert_string_equal(verbs[0]->name, "run");
	for (size_t i = 0; verbs[i]; i++) {
		assert_non_null(verbs[i]->summary);
		assert_non_null(verbs[i]->run);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(verbs[i]->name, verbs[j]->name);
	}
	free(verbs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flags_and_positionals_may_stand_in_any_order),
		cmocka_unit_test(a_value_follows_its_flag_or_an_equals_sign_or_the_letter),
		cmocka_unit_test(a_value_may_look_like_a_flag),
		cmocka_unit_test(what_is_not_understood_is_refused),
		cmocka_unit_test(too_few_and_too_many_words_are_refused),
		cmocka_unit_test(help_needs_nothing_else),
		cmocka_unit_test(the_command_keeps_every_word_of_its_own),
		cmocka_unit_test(the_first_word_that_is_no_flag_begins_the_command),
		cmocka_unit_test(there_is_a_bound_on_flags),
		cmocka_unit_test(numbers_and_durations_are_checked),
		cmocka_unit_test(every_verb_is_found_under_a_name_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
