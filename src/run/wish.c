#include "run/wish.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/text.h"
#include "run/service.h"
#include "workspace/results.h"

#define WORD(name, text) text,
const char *const WORKSPACE_MODE_NAMES[] = { WORKSPACE_MODES(WORD) NULL };
#undef WORD
const char *const WORKSPACE_COLLECTS[] = { "auto", "manual", NULL };

const struct field WORKSPACE_WISH_FIELDS[] = {
	{ "path", FIELD_STRING, 0, 1, PATH_MAX - 1,
	  .summary = "absolute directory on the server's machine; needed unless mode is none" },
	{ "mode", FIELD_STRING, 0, .one_of = WORKSPACE_MODE_NAMES,
	  .summary = "how the files get there; auto unless given" },
	{ "collect", FIELD_STRING, 0, .one_of = WORKSPACE_COLLECTS,
	  .summary = "auto (unless given): what the run changed is merged into path when it has "
		     "ended; manual: it is kept until POST /api/runs/:id/collect" },
	{ "root", FIELD_STRING, FIELD_NULLABLE, 1, PATH_MAX - 1,
	  .summary = "absolute directory in the place; the place's own unless given" },
	{ "allowLarge", FIELD_BOOL, 0,
	  .summary = "also a home directory, and more files and bytes than are usual" },
	{ 0 },
};

const char *path_beneath(const char *root, const char *path)
{
	size_t len = strlen(root);

	if (streq(root, "/"))
		return streq(path, "/") ? "" : path;
	if (strncmp(root, path, len) != 0 || (path[len] && path[len] != '/'))
		return NULL;
	return path + len;
}

bool paths_overlap(const char *a, const char *b)
{
	return path_beneath(a, b) || path_beneath(b, a);
}

int workspace_allowed(const struct runs *runs, const struct actor *actor, const char *canonical,
		      struct error *err)
{
	if (actor->kind == ACTOR_LOCAL || actor->kind == ACTOR_NOBODY)
		return 0;
	for (char **allowed = runs->allowed_paths; allowed && *allowed; allowed++) {
		_cleanup_free_ char *root = realpath(*allowed, NULL);

		if (root && path_beneath(root, canonical))
			return 0;
	}
	return error_set(err, ERR_FORBIDDEN,
			 "callers with a token may only use workspaces below the directories that "
			 "`berth serve --allow-path` names");
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
static char *canonical_path(const struct runs *runs, const struct actor *actor, const char *path,
			    struct error *err)
{
	_cleanup_free_ char *canonical = realpath(path, NULL);
	int errnum = errno;
	struct stat st;

	if (workspace_allowed(runs, actor, canonical ? canonical : path, err) < 0)
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

int workspace_wanted(const struct runs *runs, const struct actor *actor, const json_t *wish,
		     json_t **out, struct error *err)
{
	const char *path = json_str(wish, "path"), *mode = json_str(wish, "mode");
	const char *collect = json_str(wish, "collect");
	_cleanup_free_ char *canonical = NULL;

	*out = NULL;
	if (!wish || json_is_null(wish) || str_equal(mode, WORKSPACE_MODE_NAMES[MODE_NONE]))
		return 0;
	if (!runs->engine)
		return error_set(err, ERR_UNPROCESSABLE, "this server keeps no workspaces");
	if (!path)
		return error_set(err, ERR_VALIDATION, "workspace.path is needed");
	if (check_text(wish, "path", err) < 0 || check_text(wish, "root", err) < 0)
		return -1;
	canonical = canonical_path(runs, actor, path, err);
	if (!canonical)
		return -1;
	*out = json_object();
	json_put_str(*out, "path", canonical);
	json_put_str(*out, "mode", mode ? mode : WORKSPACE_MODE_NAMES[MODE_AUTO]);
	json_put_str(*out, "collect", collect ? collect : WORKSPACE_COLLECTS[0]);
	json_put_str(*out, "root", json_str(wish, "root"));
	json_put_bool(*out, "allowLarge", json_bool(wish, "allowLarge", false));
	return 0;
}
