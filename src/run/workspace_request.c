#include "run/workspace_request.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/text.h"
#include "filetree/entry.h"
#include "run/service.h"
#include "workspace/results.h"

#define WORD(name, text) text,
const char *const WORKSPACE_MODE_NAMES[] = { WORKSPACE_MODES(WORD) NULL };
#undef WORD
const char *const WORKSPACE_COLLECTS[] = { "auto", "manual", "careful", NULL };

const struct field WORKSPACE_WISH_FIELDS[] = {
	{ "path", FIELD_STRING, 0, 1, PATH_MAX - 1,
	  .summary = "absolute directory on the server's machine; required unless mode is none" },
	{ "mode", FIELD_STRING, 0, .one_of = WORKSPACE_MODE_NAMES,
	  .summary = "how the files get there; default: auto" },
	{ "collect", FIELD_STRING, 0, .one_of = WORKSPACE_COLLECTS,
	  .summary = "auto: the run's changes are merged into path when it has ended; careful: the "
		     "same, but files that run by themselves are put beside their names; manual: "
		     "the changes are kept until POST /api/runs/:id/collect. Default: careful for "
		     "runs of agents, else auto. Agents may not choose auto" },
	{ "root", FIELD_STRING, FIELD_NULLABLE, 1, PATH_MAX - 1,
	  .summary = "absolute directory in the place; default: the place's workspace" },
	{ "allowLarge", FIELD_BOOL, 0,
	  .summary = "allows a home directory, and more files and bytes than the default limits" },
	{ "show", FIELD_STRING_ARRAY, FIELD_NONBLANK, 0, WORKSPACE_SHOWN_MAX,
	  .summary = "paths below path that the run sees although names or rules hide them. Not "
		     "for agents" },
	{ 0 },
};

bool paths_overlap(const char *a, const char *b)
{
	return path_beneath(a, b) || path_beneath(b, a);
}

int workspace_allowed(const struct runs *runs, const struct actor *actor, const char *company_id,
		      const char *canonical, const char *mode, struct error *err)
{
	const struct allow_caller caller = {
		.allow = runs->allow,
		.db = runs->db,
		.company_id = company_id,
		.trusted = actor_is_trusted(actor),
	};

	if (allow_path(&caller, ALLOW_WORKSPACE, canonical, NULL, err) < 0)
		return -1;
	return str_equal(mode, WORKSPACE_MODE_NAMES[MODE_IN_PLACE])
		       ? allow_switch(&caller, ALLOW_IN_PLACE, err)
		       : 0;
}

static int check_text(const json_t *wish, const char *key, struct error *err)
{
	const char *path = json_str(wish, key);

	if (path && path[0] != '/')
		return error_set(err, ERR_VALIDATION, "workspace.%s must be an absolute path", key);
	return 0;
}

/*
 * Where a path leads is told only to those who may know: for the others what is not there, and what
 * is not theirs, is the same.
 */
static char *canonical_path(const struct runs *runs, const struct actor *actor,
			    const char *company_id, const json_t *wish, struct error *err)
{
	const char *path = json_str(wish, "path");
	_cleanup_free_ char *canonical = realpath(path, NULL);
	int errnum = errno;
	struct stat st;

	if (workspace_allowed(runs, actor, company_id, canonical ? canonical : path,
			      json_str(wish, "mode"), err) < 0)
		return NULL;
	if (!canonical) {
		error_set(err, ERR_UNPROCESSABLE,
			  "workspace.path \"%.300s\" cannot be used: %s; it must be a directory on "
			  "the server's machine",
			  path, strerror(errnum));
		return NULL;
	}
	if (stat(canonical, &st) < 0 || !S_ISDIR(st.st_mode)) {
		error_set(err, ERR_UNPROCESSABLE, "workspace.path \"%.300s\" is not a directory",
			  path);
		return NULL;
	}
	if (!utf8_valid(canonical, strlen(canonical))) {
		error_set(err, ERR_UNPROCESSABLE,
			  "workspace.path \"%.300s\" leads to a name that is not UTF-8", path);
		return NULL;
	}
	return steal(canonical);
}

int workspace_trusted(const struct actor *actor, const json_t *wish, struct error *err)
{
	if (!actor_is_agent(actor))
		return 0;
	if (json_array_size(json_array_at(wish, "show")) > 0)
		return error_set(err, ERR_FORBIDDEN,
				 "workspace.show: agents may not choose what is shown to a run");
	if (str_equal(json_str(wish, "collect"), WORKSPACE_COLLECTS[0]))
		return error_set(err, ERR_FORBIDDEN,
				 "workspace.collect: runs that an agent starts are collected with "
				 "careful: use careful or manual, or leave it out");
	return 0;
}

static int check_shown(const json_t *wish, struct error *err)
{
	const json_t *one;
	size_t i;

	json_array_foreach (json_array_at(wish, "show"), i, one) {
		const char *path = json_string_value(one);

		if (!tree_path_is_valid(path, strlen(path)))
			return error_set(err, ERR_VALIDATION,
					 "workspace.show: \"%.300s\" is not a path below the "
					 "workspace without . and ..",
					 path);
	}
	return 0;
}

int workspace_wanted(const struct runs *runs, const struct actor *actor, const char *company_id,
		     bool agent, const json_t *wish, json_t **out, struct error *err)
{
	bool careful = agent || actor_is_agent(actor);
	const char *path = json_str(wish, "path"), *mode = json_str(wish, "mode");
	const char *collect = json_str(wish, "collect");
	_cleanup_free_ char *canonical = NULL;

	*out = NULL;
	if (!wish || json_is_null(wish) || str_equal(mode, WORKSPACE_MODE_NAMES[MODE_NONE]))
		return 0;
	if (!runs->engine)
		return error_set(err, ERR_UNPROCESSABLE, "this server keeps no workspaces");
	if (!path)
		return error_set(err, ERR_VALIDATION, "workspace.path is required");
	if (check_text(wish, "path", err) < 0 || check_text(wish, "root", err) < 0 ||
	    check_shown(wish, err) < 0 || workspace_trusted(actor, wish, err) < 0)
		return -1;
	canonical = canonical_path(runs, actor, company_id, wish, err);
	if (!canonical)
		return -1;
	*out = json_object();
	json_put_str(*out, "path", canonical);
	json_put_str(*out, "mode", mode ? mode : WORKSPACE_MODE_NAMES[MODE_AUTO]);
	if (!collect)
		collect = careful ? "careful" : WORKSPACE_COLLECTS[0];
	json_put_str(*out, "collect", collect);
	/* With `manual` it is collected later, with the same care. */
	json_put_bool(*out, "careful",
		      streq(collect, "careful") || (careful && streq(collect, "manual")));
	json_put_str(*out, "root", json_str(wish, "root"));
	json_put_bool(*out, "allowLarge", json_bool(wish, "allowLarge", false));
	if (json_array_size(json_array_at(wish, "show")) > 0)
		json_put_ref(*out, "show", json_array_at(wish, "show"));
	return 0;
}
