/* Which mode, and whether at all: everything that can be refused before a place is leased. */
#include "workspace/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"
#include "git/git.h"
#include "workspace/overlay.h"

/* People's accounts; the others' homes are parts of the system. */
#define FIRST_PERSON 1000
#define NOBODY 65534

/* `path` is `other` or has it in it. */
static bool holds(const char *path, const char *other)
{
	size_t len = strlen(path);

	if (streq(path, "/"))
		return true;
	return strncmp(path, other, len) == 0 && (!other[len] || other[len] == '/');
}

static void closep(FILE **f)
{
	if (*f)
		fclose(*f);
}

/* A home, or where homes are. */
static bool holds_a_home(const char *path)
{
	_cleanup_(closep) FILE *passwd = fopen("/etc/passwd", "re");
	const char *own = getenv("HOME");
	struct passwd entry, *found = NULL;
	char text[4096];

	if (own && own[0] == '/' && own[1] && holds(path, own))
		return true;
	while (passwd && fgetpwent_r(passwd, &entry, text, sizeof(text), &found) == 0) {
		bool person = entry.pw_uid == 0 ||
			      (entry.pw_uid >= FIRST_PERSON && entry.pw_uid < NOBODY);

		if (person && entry.pw_dir[0] == '/' && entry.pw_dir[1] &&
		    holds(path, entry.pw_dir))
			return true;
	}
	return false;
}

static int check_path(const struct workspace_engine *engine, const struct workspace_request *wish,
		      struct error *err)
{
	_cleanup_free_ char *canonical = NULL, *data = realpath(engine->data_path, NULL);
	_cleanup_close_ int fd = -1;

	if (!path_is_absolute(wish->path) || !path_is_clean(wish->path))
		return error_set(err, ERR_UNPROCESSABLE,
				 "the workspace must be an absolute path, not %s", wish->path);
	fd = open(wish->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	canonical = realpath(wish->path, NULL);
	if (fd < 0 || !canonical)
		return error_set(err, ERR_UNPROCESSABLE, "the workspace %s: %s", wish->path,
				 strerror(errno));
	if (data && (holds(canonical, data) || holds(data, canonical)) && !streq(canonical, "/"))
		return error_set(err, ERR_UNPROCESSABLE,
				 "the workspace %s and the server's own data are in one another: "
				 "choose another directory",
				 wish->path);
	if (wish->allow_large)
		return 0;
	if (streq(canonical, "/"))
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s is the whole machine: choose a directory in it", wish->path);
	if (holds_a_home(canonical))
		return error_set(
			err, ERR_UNPROCESSABLE,
			"%s is somebody's home, with more in it than a run should see: choose "
			"a directory in it, or say that you mean it (allowLarge, --yes)",
			wish->path);
	return 0;
}

static int choose_auto(const struct workspace_request *wish, enum workspace_mode *mode,
		       struct error *err)
{
	struct error why = { 0 };

	*mode = MODE_COPY;
	if (wish->is_local) {
		*mode = MODE_IN_PLACE;
		return 0;
	}
	if (!wish->takes_relay)
		return error_set(err, ERR_UNPROCESSABLE,
				 "this place takes no relay, so no files can be brought there: "
				 "run with mode none");
	if (!wish->mounts || wish->shared)
		return 0;
	if (overlay_suits(wish->path, &why) == 0)
		*mode = MODE_OVERLAY;
	else if (why.code != ERR_UNPROCESSABLE) {
		error_move(err, &why);
		return -1;
	}
	error_clear(&why);
	return 0;
}

static int check_mode(const struct workspace_request *wish, enum workspace_mode mode,
		      struct error *err)
{
	bool in_place = mode == MODE_IN_PLACE || (mode == MODE_WORKTREE && wish->is_local);

	if (mode == MODE_NONE)
		return 0;
	if (mode == MODE_OVERLAY && !wish->mounts)
		return error_set(err, ERR_UNPROCESSABLE,
				 "mode overlay needs a native place: use copy");
	if (mode == MODE_OVERLAY)
		return overlay_suits(wish->path, err);
	if (mode == MODE_IN_PLACE && !wish->is_local && !wish->mounts)
		return error_set(err, ERR_UNPROCESSABLE,
				 "mode in_place needs a place on this host: use copy");
	if (!in_place && !wish->takes_relay)
		return error_set(err, ERR_UNPROCESSABLE,
				 "this place takes no relay, so no files can be brought there: "
				 "run with mode none");
	return 0;
}

/* Beside the staging directories of collecting, out of the checkout's sight. */
static char *worktree_path(const char *path, const char *run_id)
{
	_cleanup_free_ char *git = path_join(path, ".git");
	struct stat st;
	bool own = lstat(git, &st) == 0 && S_ISDIR(st.st_mode);

	return xasprintf("%s/%s/worktree-%s", path, own ? ".git/berth" : ".berth", run_id);
}

static int check_repository(const struct workspace_request *wish, struct error *err)
{
	_cleanup_json_ json_t *about = NULL;
	_cleanup_close_ int fd = -1;
	enum git_kind kind;

	if (dir_open(AT_FDCWD, wish->path, &fd, err) < 0 ||
	    git_inspect(fd, wish->path, -1, NULL, &kind, &about, err) < 0)
		return -1;
	if (kind == GIT_NONE)
		return error_set(err, ERR_UNPROCESSABLE,
				 "mode worktree needs a git repository, and %s is none: use copy",
				 wish->path);
	return 0;
}

int workspace_prepare(struct workspace_engine *engine, const struct workspace_request *wish,
		      struct workspace_state *state, struct error *err)
{
	enum workspace_mode mode = wish->mode;
	struct error none = { 0 };

	*state = (struct workspace_state){ 0 };
	/* Asked again after a crash: what was begun goes on. */
	if (workspace_state_load(&engine->results, wish->run_id, state, &none) == 0) {
		if (state->phase != PHASE_PREPARED && str_equal(state->path, wish->path))
			return 0;
		workspace_state_clear(state);
	}
	error_clear(&none);
	if (mode != MODE_NONE && check_path(engine, wish, err) < 0)
		return -1;
	if (mode == MODE_AUTO && choose_auto(wish, &mode, err) < 0)
		return -1;
	if (check_mode(wish, mode, err) < 0)
		return -1;
	if (streq(wish->path, "/") && mode != MODE_IN_PLACE && mode != MODE_NONE)
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s is the whole machine: choose a directory in it", wish->path);
	if (mode == MODE_WORKTREE && check_repository(wish, err) < 0)
		return -1;
	id_copy(state->run_id, wish->run_id);
	state->path = xstrdup(wish->path);
	state->mode = mode;
	state->phase = PHASE_PREPARED;
	state->collect = wish->collect;
	state->careful = wish->careful;
	state->show = json_incref(wish->show);
	state->allow_large = wish->allow_large;
	if (mode == MODE_WORKTREE)
		state->worktree = worktree_path(wish->path, wish->run_id);
	if (workspace_state_save(&engine->results, state, err) < 0) {
		workspace_state_clear(state);
		return -1;
	}
	return 0;
}
