/*
 * What a request may say about its workspace, and who may say it.
 */
#include "world.h"

#include <unistd.h>

#include "run/wish.h"
#include "workspace/workspace.h"

static void paths_overlap_by_whole_names_only(void **state)
{
	static const struct {
		const char *a, *b;
		bool overlap;
	} CASES[] = {
		{ "/a", "/a", true },       { "/a", "/a/b", true },    { "/a/b/c", "/a", true },
		{ "/a", "/ab", false },     { "/a/b", "/a/c", false }, { "/", "/a", true },
		{ "/a/bc", "/a/b", false }, { "/", "/", true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(CASES); i++)
		assert_int_equal(paths_overlap(CASES[i].a, CASES[i].b), CASES[i].overlap);
}

static void what_follows_a_root_keeps_its_slash(void **state)
{
	(void)state;
	assert_string_equal(path_beneath("/w", "/w"), "");
	assert_string_equal(path_beneath("/w", "/w/sub/dir"), "/sub/dir");
	assert_string_equal(path_beneath("/", "/w"), "/w");
	assert_null(path_beneath("/w", "/wide"));
	assert_null(path_beneath("/w/sub", "/w"));
}

/* A runs service that only has to judge wishes. */
struct judge {
	char dir[64], inside[96], link[96], outside[96];
	char *allowed[2];
	struct workspace_engine engine;
	struct runs runs;
};

static int judge_setup(void **state)
{
	struct judge *j = xcalloc(1, sizeof(*j));

	snprintf(j->dir, sizeof(j->dir), "/tmp/berth-wish.XXXXXX");
	assert_non_null(mkdtemp(j->dir));
	snprintf(j->inside, sizeof(j->inside), "%s/allowed/project", j->dir);
	snprintf(j->outside, sizeof(j->outside), "%s/private", j->dir);
	snprintf(j->link, sizeof(j->link), "%s/allowed/link", j->dir);
	assert_int_equal(dir_make(AT_FDCWD, j->inside, 0700, NULL), 0);
	assert_int_equal(dir_make(AT_FDCWD, j->outside, 0700, NULL), 0);
	assert_int_equal(symlink(j->outside, j->link), 0);
	j->allowed[0] = xasprintf("%s/allowed", j->dir);
	j->runs.allowed_paths = j->allowed;
	j->runs.engine = &j->engine;
	*state = j;
	return 0;
}

static int judge_teardown(void **state)
{
	struct judge *j = *state;

	free(j->allowed[0]);
	dir_remove_tree(AT_FDCWD, j->dir, NULL);
	free(j);
	return 0;
}

static enum error_code wish(struct judge *j, enum actor_kind kind, const char *path, json_t **out)
{
	const struct actor actor = { .type = "user", .id = "x", .kind = kind };
	_cleanup_json_ json_t *asked = json_pack("{s:s}", "path", path);
	_cleanup_error_ struct error err = { 0 };

	workspace_wanted(&j->runs, &actor, asked, out, &err);
	return err.code;
}

static void the_servers_own_user_may_name_any_directory(void **state)
{
	struct judge *j = *state;
	_cleanup_json_ json_t *out = NULL, *linked = NULL;

	assert_int_equal(wish(j, ACTOR_LOCAL, j->outside, &out), ERR_NONE);
	assert_string_equal(json_str(out, "path"), j->outside);
	assert_string_equal(json_str(out, "mode"), "auto");
	assert_string_equal(json_str(out, "collect"), "auto");
	/* What is kept is where it leads. */
	assert_int_equal(wish(j, ACTOR_LOCAL, j->link, &linked), ERR_NONE);
	assert_string_equal(json_str(linked, "path"), j->outside);
}

static void a_token_opens_only_what_the_operator_allowed(void **state)
{
	struct judge *j = *state;
	static const enum actor_kind KINDS[] = { ACTOR_USER, ACTOR_AGENT, ACTOR_RUN };

	for (size_t i = 0; i < ARRAY_SIZE(KINDS); i++) {
		_cleanup_json_ json_t *out = NULL, *none = NULL;

		assert_int_equal(wish(j, KINDS[i], j->inside, &out), ERR_NONE);
		assert_int_equal(wish(j, KINDS[i], j->outside, &none), ERR_FORBIDDEN);
		/* Neither through a link that lies where it may, nor by asking what is there. */
		assert_int_equal(wish(j, KINDS[i], j->link, &none), ERR_FORBIDDEN);
		assert_int_equal(wish(j, KINDS[i], "/no/such/place", &none), ERR_FORBIDDEN);
		assert_null(none);
	}
	j->runs.allowed_paths = NULL;
	assert_int_equal(wish(j, ACTOR_USER, j->inside, &(json_t *){ NULL }), ERR_FORBIDDEN);
}

static void what_is_no_directory_is_refused_in_words(void **state)
{
	struct judge *j = *state;
	_cleanup_free_ char *file = xasprintf("%s/file", j->dir);
	json_t *none = NULL;

	assert_int_equal(file_replace(AT_FDCWD, file, "x", 1, 0600, NULL), 0);
	assert_int_equal(wish(j, ACTOR_LOCAL, file, &none), ERR_UNPROCESSABLE);
	assert_int_equal(wish(j, ACTOR_LOCAL, "/no/such/place", &none), ERR_UNPROCESSABLE);
	assert_int_equal(wish(j, ACTOR_LOCAL, "relative", &none), ERR_VALIDATION);
	assert_null(none);
}

static void no_wish_is_no_workspace(void **state)
{
	struct judge *j = *state;
	const struct actor actor = { .kind = ACTOR_LOCAL };
	_cleanup_json_ json_t *none = json_pack("{s:s}", "mode", "none"), *null = json_null();
	_cleanup_json_ json_t *nothing = json_object();
	json_t *out = NULL;

	assert_ok(workspace_wanted(&j->runs, &actor, NULL, &out, err));
	assert_null(out);
	assert_ok(workspace_wanted(&j->runs, &actor, null, &out, err));
	assert_null(out);
	assert_ok(workspace_wanted(&j->runs, &actor, none, &out, err));
	assert_null(out);
	assert_int_equal(workspace_wanted(&j->runs, &actor, nothing, &out, NULL), -1);
}

#define judge_test(f) cmocka_unit_test_setup_teardown(f, judge_setup, judge_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_overlap_by_whole_names_only),
		cmocka_unit_test(what_follows_a_root_keeps_its_slash),
		judge_test(the_servers_own_user_may_name_any_directory),
		judge_test(a_token_opens_only_what_the_operator_allowed),
		judge_test(what_is_no_directory_is_refused_in_words),
		judge_test(no_wish_is_no_workspace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
