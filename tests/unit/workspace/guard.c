/*
 * What a run's changes may not do by themselves: show more to later runs, or bring what runs by
 * itself (workspace/guard.c, git/known_names.c).
 */
#include "files_fixture.h"

#include "base/fault.h"
#include "git/known_names.h"

static void expect_held(const struct files *f, const struct told_list *told, const char *path,
			const char *content)
{
	const struct told *t = told_of(told, path);
	char beside[600];

	if (!t)
		fail_msg("%s was not told", path);
	if (t->fate != FATE_HELD)
		fail_msg("%s: fate %s", path, change_fate_name(t->fate));
	assert_true(t->reason[0]);
	if (content)
		expect_text(f->host_fd, beside_name(f, path, beside), content);
	else
		assert_string_equal(t->beside, "");
}

static void names_that_hold_secrets_are_known_wherever_they_are(void **state)
{
	static const char *const hidden[] = {
		".env",     ".env.local",         ".envrc",  "a/.env", "tls/server.pem",
		"x.key",    "a/b/id_rsa",         ".npmrc",  "_netrc", "a/.docker/config.json",
		".p12.p12", ".cargo/credentials", "x/.kdbx",
	};
	static const char *const shown[] = {
		"env",
		"a.env",
		"x.pem.txt",
		"keys",
		"id_rsa.pub",
		"npmrc",
		"config.json",
		".aws",
		"docker/config.json",
		".docker/config.json.md",
		"my.key/x",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
		if (!names_hide(hidden[i], strlen(hidden[i]), false))
			fail_msg("%s is shown", hidden[i]);
	for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
		if (names_hide(shown[i], strlen(shown[i]), false))
			fail_msg("%s is hidden", shown[i]);
	assert_non_null(names_hide(".aws", 4, true));
	assert_non_null(names_hide_within("a/.aws/config", 13, false));
	assert_non_null(names_hide_within("a/.config/gcloud/x/y", 20, false));
	assert_null(names_hide_within("a/config/gcloud/x/y", 19, false));
}

static void what_runs_by_itself_is_known_by_its_name_in_whatever_case(void **state)
{
	static const char *const running[] = {
		".claude/settings.json",
		"sub/.Claude/hooks/x",
		".mcp.json",
		".vscode/tasks.json",
		".envrc",
		".husky/pre-commit",
		".github/workflows/a/b.yml",
		"a/.gitmodules",
		".BASHRC",
		"home/.zshrc",
	};
	static const char *const plain[] = {
		"claude/settings.json", ".vscode/other.json", "tasks.json",
		".github/README.md",    "Makefile",           "x.bashrc",
		".bashrc.bak",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(running); i++)
		if (!names_run(running[i], strlen(running[i]), TREE_FILE))
			fail_msg("%s is not known", running[i]);
	for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
		if (names_run(plain[i], strlen(plain[i]), TREE_FILE))
			fail_msg("%s is taken for one", plain[i]);
	assert_null(names_run(".claude", 7, TREE_DIR));
	assert_non_null(names_run(".claude", 7, TREE_SYMLINK));
	assert_non_null(names_run("a/.github", 9, TREE_SYMLINK));
	assert_null(names_run(".github", 7, TREE_FILE));
}

static void a_rule_file_that_shows_more_waits_beside_and_one_that_hides_more_is_merged(void **state)
{
	struct files *f = *state;
	struct told_list told;
	struct apply_report report;

	put_text(f->host_fd, ".gitignore", "a\nb\n");
	open_made(f->host_fd, "sub");
	put_text(f->host_fd, "sub/.gitignore", "c\n");
	put_text(f->host_fd, "sub/.berthignore", "!d\n");
	files_stage(f);
	put_text(f->place_fd, ".gitignore", "a\n");
	put_text(f->place_fd, ".berthignore", "*.o\n");
	unlinkat(f->place_fd, "sub/.gitignore", 0);
	unlinkat(f->place_fd, "sub/.berthignore", 0);
	open_made(f->place_fd, "new");
	put_text(f->place_fd, "new/.GITIGNORE", "!a\n");
	files_fetch(f);
	files_apply(f, NULL, &told, &report);
	expect_text(f->host_fd, ".gitignore", "a\nb\n");
	expect_held(f, &told, ".gitignore", "a\n");
	expect_text(f->host_fd, ".berthignore", "*.o\n");
	expect_text(f->host_fd, "sub/.gitignore", "c\n");
	expect_held(f, &told, "sub/.gitignore", NULL);
	/* Without it more is hidden. */
	assert_false(exists(f->host_fd, "sub/.berthignore"));
	assert_false(exists(f->host_fd, "new/.GITIGNORE"));
	expect_held(f, &told, "new/.GITIGNORE", "!a\n");
	assert_int_equal(report.held, 3);
	assert_int_equal(report.conflicts, 0);
}

static void a_rule_file_that_cannot_be_read_as_one_waits_beside(void **state)
{
	struct files *f = *state;
	_cleanup_free_ char *large = xmalloc(IGNORE_TEXT_MAX + 1);
	struct told_list told;

	memset(large, '\n', IGNORE_TEXT_MAX + 1);
	put_text(f->host_fd, ".gitignore", "a\n");
	put_text(f->host_fd, ".berthignore", "a\n");
	files_stage(f);
	put_bytes(f->place_fd, ".gitignore", "a\nb\n", 4, 0200);
	unlinkat(f->place_fd, ".berthignore", 0);
	assert_return_code(symlinkat(".gitignore", f->place_fd, ".berthignore"), errno);
	open_made(f->place_fd, "deep");
	put_bytes(f->place_fd, "deep/.gitignore", large, IGNORE_TEXT_MAX + 1, 0644);
	files_fetch(f);
	files_apply(f, NULL, &told, NULL);
	expect_text(f->host_fd, ".gitignore", "a\n");
	expect_text(f->host_fd, ".berthignore", "a\n");
	assert_false(exists(f->host_fd, "deep/.gitignore"));
	assert_int_equal(told_of(&told, ".gitignore")->fate, FATE_HELD);
	assert_int_equal(told_of(&told, ".berthignore")->fate, FATE_HELD);
	assert_int_equal(told_of(&told, "deep/.gitignore")->fate, FATE_HELD);
}

static void with_care_what_runs_by_itself_waits_beside_its_name(void **state)
{
	struct files *f = *state;
	struct told_list told;
	struct apply_report report;

	put_text(f->host_fd, ".envrc", "old\n");
	put_text(f->host_fd, ".profile", "old\n");
	files_stage(f);
	put_text(f->place_fd, ".envrc", "new\n");
	unlinkat(f->place_fd, ".profile", 0);
	open_made(f->place_fd, ".claude");
	put_text(f->place_fd, ".claude/settings.json", "{}");
	put_text(f->place_fd, "plain", "x");
	files_fetch(f);
	f->state.careful = true;
	files_apply(f, NULL, &told, &report);
	expect_text(f->host_fd, ".envrc", "old\n");
	expect_held(f, &told, ".envrc", "new\n");
	expect_held(f, &told, ".claude/settings.json", "{}");
	expect_text(f->host_fd, "plain", "x");
	/* What is gone runs no more. */
	assert_false(exists(f->host_fd, ".profile"));
	assert_int_equal(report.held, 2);
	assert_int_equal(report.runs, 2);
}

static void a_repository_in_parts_is_known_by_what_is_there_afterwards(void **state)
{
	static const char *const dirs[] = {
		"r", "r/objects", "r/refs", "r/hooks", "no", "no/hooks"
	};
	struct files *f = *state;
	struct told_list told;

	open_made(f->host_fd, "s");
	put_text(f->host_fd, "s/HEAD", "ref: refs/heads/main\n");
	put_text(f->host_fd, "s/config", "[core]\n");
	files_stage(f);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		open_made(f->place_fd, dirs[i]);
	put_text(f->place_fd, "r/HEAD", "x");
	put_text(f->place_fd, "r/config", "x");
	put_text(f->place_fd, "r/hooks/pre-push", "x");
	put_text(f->place_fd, "no/config", "x");
	put_text(f->place_fd, "no/hooks/pre-push", "x");
	open_made(f->place_fd, "s/objects");
	open_made(f->place_fd, "s/refs");
	put_text(f->place_fd, "s/objects/x", "x");
	files_fetch(f);
	f->state.careful = true;
	files_apply(f, NULL, &told, NULL);
	expect_held(f, &told, "r/HEAD", "x");
	expect_held(f, &told, "r/config", "x");
	expect_held(f, &told, "r/hooks/pre-push", "x");
	expect_text(f->host_fd, "no/config", "x");
	expect_text(f->host_fd, "no/hooks/pre-push", "x");
	assert_false(exists(f->host_fd, "s/objects"));
	assert_false(exists(f->host_fd, "s/refs"));
}

static void a_crash_before_it_is_put_beside_leaves_it_held(void **state)
{
	struct files *f = *state;
	struct apply_options options = { .cancel_fd = -1 };
	struct apply_report report;
	struct told_list told = { 0 };
	struct error err = { 0 };

	put_text(f->host_fd, ".gitignore", "a\n");
	files_stage(f);
	put_text(f->place_fd, ".gitignore", "");
	files_fetch(f);
	must(fault_init("workspace.apply.beside:error", &err), &err);
	assert_int_equal(results_apply(&f->results, &f->state, &options, NULL, NULL, &report, &err),
			 -1);
	error_clear(&err);
	must(fault_init("", &err), &err);
	files_apply(f, NULL, &told, &report);
	expect_text(f->host_fd, ".gitignore", "a\n");
	expect_held(f, &told, ".gitignore", "");
	assert_int_equal(report.held, 1);
	/* And once more: nothing is put a second time. */
	files_apply(f, NULL, &told, &report);
	assert_int_equal(report.held, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_that_hold_secrets_are_known_wherever_they_are),
		cmocka_unit_test(what_runs_by_itself_is_known_by_its_name_in_whatever_case),
		with_files(
			a_rule_file_that_shows_more_waits_beside_and_one_that_hides_more_is_merged),
		with_files(a_rule_file_that_cannot_be_read_as_one_waits_beside),
		with_files(with_care_what_runs_by_itself_waits_beside_its_name),
		with_files(a_repository_in_parts_is_known_by_what_is_there_afterwards),
		with_files(a_crash_before_it_is_put_beside_leaves_it_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
