/*
 * What a request may say about its workspace, and who may say it.
 */
#include "world.h"

#include <unistd.h>

#include "run/workspace_request.h"
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
#define OURS "11111111-1111-4111-8111-111111111111"

struct judge {
	char dir[64], inside[96], link[96], outside[96];
	char *allowed[2];
	struct allow allow;
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
	j->allow.list[ALLOW_WORKSPACE] = j->allowed;
	j->runs.allow = &j->allow;
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

	workspace_wanted(&j->runs, &actor, OURS, false, asked, out, &err);
	return err.code;
}

/* A wish for the directory that everybody may name. */
static enum error_code wish_more(struct judge *j, enum actor_kind kind, bool agent,
				 const char *collect, const char *show, json_t **out)
{
	const struct actor actor = { .type = "user", .id = "x", .kind = kind };
	_cleanup_json_ json_t *asked = json_pack("{s:s}", "path", j->inside);
	_cleanup_error_ struct error err = { 0 };

	if (collect)
		json_put_str(asked, "collect", collect);
	if (show)
		json_put_new(asked, "show", json_pack("[s]", show));
	workspace_wanted(&j->runs, &actor, OURS, agent, asked, out, &err);
	return err.code;
}

static void runs_of_agents_are_collected_with_care_and_agents_show_nothing(void **state)
{
	struct judge *j = *state;
	static const enum actor_kind AGENTS[] = { ACTOR_AGENT, ACTOR_RUN };
	_cleanup_json_ json_t *mine = NULL, *theirs = NULL, *later = NULL, *shown = NULL;

	assert_int_equal(wish_more(j, ACTOR_LOCAL, false, NULL, NULL, &mine), ERR_NONE);
	assert_string_equal(json_str(mine, "collect"), "auto");
	assert_false(json_bool(mine, "careful", true));
	assert_int_equal(wish_more(j, ACTOR_LOCAL, true, NULL, NULL, &theirs), ERR_NONE);
	assert_string_equal(json_str(theirs, "collect"), "careful");
	assert_true(json_bool(theirs, "careful", false));
	assert_int_equal(wish_more(j, ACTOR_LOCAL, true, "manual", NULL, &later), ERR_NONE);
	assert_true(json_bool(later, "careful", false));
	assert_int_equal(wish_more(j, ACTOR_USER, false, NULL, "a/.env", &shown), ERR_NONE);
	assert_int_equal(json_array_size(json_array_at(shown, "show")), 1);
	for (size_t i = 0; i < ARRAY_SIZE(AGENTS); i++) {
		_cleanup_json_ json_t *own = NULL, *none = NULL;

		assert_int_equal(wish_more(j, AGENTS[i], false, NULL, NULL, &own), ERR_NONE);
		assert_string_equal(json_str(own, "collect"), "careful");
		assert_int_equal(wish_more(j, AGENTS[i], false, "auto", NULL, &none),
				 ERR_FORBIDDEN);
		assert_int_equal(wish_more(j, AGENTS[i], false, NULL, ".env", &none),
				 ERR_FORBIDDEN);
	}
}

static void what_is_shown_lies_beneath_the_workspace(void **state)
{
	static const char *const BAD[] = {
		"/etc/passwd", "../x", "a/../b", "a//b", "", "./a", "."
	};
	json_t *none = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(BAD); i++)
		assert_int_equal(wish_more(*state, ACTOR_LOCAL, false, NULL, BAD[i], &none),
				 ERR_VALIDATION);
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
	j->runs.allow = NULL;
	assert_int_equal(wish(j, ACTOR_USER, j->inside, &(json_t *){ NULL }), ERR_FORBIDDEN);
}

static void in_place_is_closed_to_tokens_until_it_is_opened(void **state)
{
	struct judge *j = *state;
	const struct actor person = { .type = "user", .id = "x", .kind = ACTOR_USER };
	/* A run that the server carries on is its starter's. */
	const struct actor carried = { .type = "system", .by_token = true };
	const struct actor *const actors[] = { &person, &carried };
	_cleanup_json_ json_t *asked =
		json_pack("{s:s, s:s}", "path", j->inside, "mode", "in_place");

	for (size_t i = 0; i < ARRAY_SIZE(actors); i++) {
		_cleanup_error_ struct error err = { 0 };
		_cleanup_json_ json_t *out = NULL;

		j->allow.open[ALLOW_IN_PLACE] = false;
		workspace_wanted(&j->runs, actors[i], OURS, false, asked, &out, &err);
		assert_int_equal(err.code, ERR_FORBIDDEN);
		assert_non_null(strstr(err.message, "--allow-in-place-for-tokens"));
		assert_null(out);
		j->allow.open[ALLOW_IN_PLACE] = true;
		assert_int_equal(
			workspace_wanted(&j->runs, actors[i], OURS, false, asked, &out, NULL), 0);
	}
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

	assert_ok(workspace_wanted(&j->runs, &actor, OURS, false, NULL, &out, err));
	assert_null(out);
	assert_ok(workspace_wanted(&j->runs, &actor, OURS, false, null, &out, err));
	assert_null(out);
	assert_ok(workspace_wanted(&j->runs, &actor, OURS, false, none, &out, err));
	assert_null(out);
	assert_int_equal(workspace_wanted(&j->runs, &actor, OURS, false, nothing, &out, NULL), -1);
}

#define judge_test(f) cmocka_unit_test_setup_teardown(f, judge_setup, judge_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(paths_overlap_by_whole_names_only),
		cmocka_unit_test(what_follows_a_root_keeps_its_slash),
		judge_test(the_servers_own_user_may_name_any_directory),
		judge_test(a_token_opens_only_what_the_operator_allowed),
		judge_test(in_place_is_closed_to_tokens_until_it_is_opened),
		judge_test(what_is_no_directory_is_refused_in_words),
		judge_test(no_wish_is_no_workspace),
		judge_test(runs_of_agents_are_collected_with_care_and_agents_show_nothing),
		judge_test(what_is_shown_lies_beneath_the_workspace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
