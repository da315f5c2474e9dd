/*
 * One change at a time. What is displaced is never deleted: it is in the staging directory under
 * the change's number, or back under its name, or beside it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"
#include "workspace/apply_internal.h"
#include "workspace/merge.h"

#define MAX_BESIDE 10000
#define RACED "it changed on the host while it was being collected"

void act_clear(struct act *act)
{
	free(act->reason);
	act->reason = NULL;
}

void act_conclude(struct apply *a, const struct act *act, enum change_fate fate, const char *beside,
		  const char *reason)
{
	journal_add_outcome(a->journal, &(struct journal_outcome){ .number = act->number,
								   .fate = fate,
								   .beside = beside,
								   .reason = reason });
}

static int refuse(struct apply *a, const struct act *act, int errnum, struct error *err)
{
	if (apply_is_fatal(errnum))
		return error_errno(err, errnum, "apply %s", act->place.path);
	if (staging_discard(&a->staging, act->number, err) < 0)
		return -1;
	act_conclude(a, act, FATE_REFUSED, NULL, apply_refusal(errnum));
	return 0;
}

/* An intent that is found only now; what was done before is on disk before it. */
static int intend_now(struct apply *a, const struct act *act, const char *path, struct error *err)
{
	if (staging_sync(&a->staging, err) < 0)
		return -1;
	journal_add_intent(a->journal, &(struct journal_intent){ .number = act->number,
								 .act = act->kind,
								 .fate = act->fate,
								 .dev = act->dev,
								 .ino = act->ino,
								 .path = path });
	return journal_sync(a->journal, err);
}

/* Whether the staging directory holds what we made, as we made it. */
static bool is_ours(const struct apply *a, const struct act *act)
{
	char name[STAGED_NAME_SIZE];
	struct stat st;

	staged_name(act->number, name);
	return fstatat(a->staging.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_dev == act->dev && st.st_ino == act->ino &&
	       host_is_exactly(a->staging.fd, name, &act->place, 0777);
}

static void conclude_put(struct apply *a, const struct act *act, const char *path)
{
	bool elsewhere = !streq(path, act->place.path);

	/* What is in a directory goes where the directory went. */
	if (elsewhere && act->place.type == TREE_DIR)
		journal_add_redirect(a->journal, act->place.path, path);
	act_conclude(a, act, elsewhere ? act_fate_beside(act) : act->fate, elsewhere ? path : NULL,
		     act->reason);
}

/* Under the first name beside `way` that is nobody's. */
static int put_beside(struct apply *a, struct act *act, const struct way *way, struct error *err)
{
	char name[STAGED_NAME_SIZE];
	struct stat st;

	staged_name(act->number, name);
	act->kind = ACT_PUT;
	act->fate = act_fate_beside(act);
	/* In a directory that is beside, its own name comes first. */
	for (unsigned n = way->redirected ? 0 : 1; n < MAX_BESIDE; n++) {
		_cleanup_free_ char *path =
			n ? apply_beside(way->path, a->tag, n - 1) : xstrdup(way->path);
		const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;

		if (apply_is_known(a, path) ||
		    fstatat(way->parent, last, &st, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		if (intend_now(a, act, path, err) < 0 ||
		    APPLY_STEP(a, "workspace.apply.beside", err) < 0)
			return -1;
		if (apply_rename_new(a, a->staging.fd, name, way->parent, last) == 0) {
			conclude_put(a, act, path);
			return 0;
		}
		if (errno != EEXIST)
			return refuse(a, act, errno, err);
	}
	return refuse(a, act, EEXIST, err);
}

static int make_again(struct apply *a, struct act *act, struct error *err)
{
	return staging_make(&a->staging, a->run_fd, act->number, &act->place, &act->owner,
			    &act->dev, &act->ino, err);
}

static int find_way_beside(struct apply *a, struct act *act, struct error *err)
{
	_cleanup_(way_clear) struct way way = { .parent = -1 };

	if (apply_find_way(a, act->place.path, &way, err) < 0)
		return -1;
	return way.parent < 0 ? refuse(a, act, way.errnum, err) : put_beside(a, act, &way, err);
}

/* A conflict that shows only now. The staging directory has the place's entry. */
static int turn_conflict(struct apply *a, struct act *act, struct error *err)
{
	if (!act->reason)
		act->reason = xstrdup(RACED);
	return find_way_beside(a, act, err);
}

/*
 * Something of the host's in the staging directory whose name was taken in the meantime: beside it
 * as well. *where is then its path.
 */
static int keep_hosts_beside(struct apply *a, const char *staged, const struct way *way,
			     char **where, struct error *err)
{
	for (unsigned n = 0; n < MAX_BESIDE; n++) {
		_cleanup_free_ char *path = apply_beside(way->path, a->tag, n);
		const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;

		if (apply_is_known(a, path))
			continue;
		if (apply_rename_new(a, a->staging.fd, staged, way->parent, last) == 0) {
			*where = steal(path);
			return 0;
		}
		if (errno != EEXIST)
			return error_errno(err, errno, "put back %s", way->path);
	}
	return error_set(err, ERR_INTERNAL, "no name is left beside %s", way->path);
}

/* Puts what is staged back under its name, or beside the one who took it (*where). */
static int put_back(struct apply *a, const char *staged, const struct way *way, char **where,
		    struct error *err)
{
	*where = NULL;
	if (apply_rename_new(a, a->staging.fd, staged, way->parent, way->name) == 0)
		return 0;
	if (errno != EEXIST)
		return error_errno(err, errno, "put back %s", way->path);
	return keep_hosts_beside(a, staged, way, where, err);
}

static int put(struct apply *a, struct act *act, struct error *err)
{
	_cleanup_(way_clear) struct way way = { .parent = -1 };
	struct host_view now;
	char name[STAGED_NAME_SIZE];

	staged_name(act->number, name);
	if (apply_find_way(a, act->place.path, &way, err) < 0)
		return -1;
	if (way.parent < 0)
		return refuse(a, act, way.errnum, err);
	if (way.redirected || act->beside)
		return put_beside(a, act, &way, err);
	if (APPLY_STEP(a, "workspace.apply.put", err) < 0)
		return -1;
	if (FENCE_OFF("workspace.apply.exchange")
		    ? renameat(a->staging.fd, name, way.parent, way.name) == 0
		    : apply_rename_new(a, a->staging.fd, name, way.parent, way.name) == 0) {
		conclude_put(a, act, way.path);
		return 0;
	}
	if (errno != EEXIST)
		return refuse(a, act, errno, err);
	if (host_view(way.parent, way.name, &now) == 0 &&
	    (now.entry.type != TREE_FILE || host_hash(way.parent, way.name, &now)) &&
	    merge_is_place(&act->place, &now.entry)) {
		act_conclude(a, act, FATE_SAME, NULL, NULL);
		return staging_discard(&a->staging, act->number, err);
	}
	return turn_conflict(a, act, err);
}

/* The target and the staged change places; who deleted the target meanwhile gets it back. */
static int exchange(struct apply *a, const struct act *act, const struct way *way,
		    struct error *err)
{
	char name[STAGED_NAME_SIZE];

	staged_name(act->number, name);
	for (int i = 0; i < 100; i++) {
		if (renameat2(a->staging.fd, name, way->parent, way->name, RENAME_EXCHANGE) == 0)
			return 0;
		if (errno != ENOENT)
			return error_errno(err, errno, "put back %s", way->path);
		if (apply_rename_new(a, a->staging.fd, name, way->parent, way->name) == 0)
			return 0;
		if (errno != EEXIST)
			return error_errno(err, errno, "put back %s", way->path);
	}
	return error_set(err, ERR_IO, "put back %s: it keeps changing", way->path);
}

/*
 * What came out is not what was staged. It goes back in, and ours comes out. If something else
 * comes out, somebody has changed the file again since: that is the newest and goes back in its
 * turn, and what it displaced is kept beside. Nobody's version is dropped.
 */
static int swap_back(struct apply *a, struct act *act, const struct way *way, struct error *err)
{
	_cleanup_free_ char *where = NULL;
	char name[STAGED_NAME_SIZE];
	struct stat st;

	staged_name(act->number, name);
	if (APPLY_STEP(a, "workspace.apply.back", err) < 0 || exchange(a, act, way, err) < 0)
		return -1;
	if (is_ours(a, act))
		return turn_conflict(a, act, err);
	if (fstatat(a->staging.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (APPLY_STEP(a, "workspace.apply.again", err) < 0 ||
		    exchange(a, act, way, err) < 0)
			return -1;
		if (fstatat(a->staging.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    keep_hosts_beside(a, name, way, &where, err) < 0)
			return -1;
	}
	if (where) {
		free(act->reason);
		act->reason = xasprintf(RACED " more than once; an older version of the host's is "
					      "%s",
					where);
	}
	return make_again(a, act, err) < 0 ? -1 : turn_conflict(a, act, err);
}

static int check_swapped(struct apply *a, struct act *act, const struct way *way, struct error *err)
{
	char name[STAGED_NAME_SIZE];

	staged_name(act->number, name);
	if (APPLY_STEP(a, "workspace.apply.check", err) < 0)
		return -1;
	if (!host_is_exactly(a->staging.fd, name, &act->expected, 07777))
		return swap_back(a, act, way, err);
	act_conclude(a, act, act->fate, NULL, act->reason);
	return 0;
}

static void out_name(const struct act *act, char out[STAGED_NAME_SIZE])
{
	snprintf(out, STAGED_NAME_SIZE, "%u.out", act->number);
}

/*
 * Without RENAME_EXCHANGE: out, looked at, and the new one in. For a moment nothing is under the
 * name; a crash in it is put right by applying again.
 */
static int check_taken_out(struct apply *a, struct act *act, const struct way *way,
			   struct error *err)
{
	_cleanup_free_ char *where = NULL;
	char name[STAGED_NAME_SIZE], out[STAGED_NAME_SIZE];

	staged_name(act->number, name);
	out_name(act, out);
	if (APPLY_STEP(a, "workspace.apply.check", err) < 0)
		return -1;
	if (!host_is_exactly(a->staging.fd, out, &act->expected, 07777)) {
		if (put_back(a, out, way, &where, err) < 0)
			return -1;
		return turn_conflict(a, act, err);
	}
	if (apply_rename_new(a, a->staging.fd, name, way->parent, way->name) < 0)
		return errno == EEXIST ? turn_conflict(a, act, err)
				       : error_errno(err, errno, "apply %s", way->path);
	if (renameat(a->staging.fd, out, a->staging.fd, name) < 0)
		return error_errno(err, errno, "keep the former %s", way->path);
	act_conclude(a, act, act->fate, NULL, act->reason);
	return 0;
}

static int swap_in_steps(struct apply *a, struct act *act, const struct way *way, struct error *err)
{
	char out[STAGED_NAME_SIZE];

	out_name(act, out);
	if (renameat(way->parent, way->name, a->staging.fd, out) == 0)
		return check_taken_out(a, act, way, err);
	return errno == ENOENT ? turn_conflict(a, act, err) : refuse(a, act, errno, err);
}

static int swap(struct apply *a, struct act *act, struct error *err)
{
	_cleanup_(way_clear) struct way way = { .parent = -1 };
	char name[STAGED_NAME_SIZE];

	staged_name(act->number, name);
	if (apply_find_way(a, act->place.path, &way, err) < 0)
		return -1;
	if (way.parent < 0)
		return refuse(a, act, way.errnum, err);
	/* A directory above it was replaced since we looked. */
	if (way.redirected)
		return turn_conflict(a, act, err);
	if (APPLY_STEP(a, "workspace.apply.swap", err) < 0)
		return -1;
	if (FENCE_OFF("workspace.apply.exchange")) {
		if (renameat(a->staging.fd, name, way.parent, way.name) < 0)
			return refuse(a, act, errno, err);
		act_conclude(a, act, act->fate, NULL, act->reason);
		return 0;
	}
	if (!a->staging.can_exchange)
		return swap_in_steps(a, act, &way, err);
	if (renameat2(a->staging.fd, name, way.parent, way.name, RENAME_EXCHANGE) == 0)
		return check_swapped(a, act, &way, err);
	return errno == ENOENT ? turn_conflict(a, act, err) : refuse(a, act, errno, err);
}

static int check_removed(struct apply *a, struct act *act, const struct way *way, struct error *err)
{
	_cleanup_free_ char *where = NULL;
	char name[STAGED_NAME_SIZE];

	staged_name(act->number, name);
	if (APPLY_STEP(a, "workspace.apply.check", err) < 0)
		return -1;
	if (host_is_exactly(a->staging.fd, name, &act->expected, 07777)) {
		act_conclude(a, act, act->fate, NULL, act->reason);
		return 0;
	}
	if (APPLY_STEP(a, "workspace.apply.back", err) < 0 ||
	    put_back(a, name, way, &where, err) < 0)
		return -1;
	act_conclude(a, act, FATE_KEPT_HOST, where, RACED);
	return 0;
}

static int remove_file(struct apply *a, struct act *act, struct error *err)
{
	char name[STAGED_NAME_SIZE];
	const char *last;
	_cleanup_close_ int parent = host_open_parent(a->workspace_fd, act->place.path, &last);

	if (parent < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) {
		act_conclude(a, act, FATE_SAME, NULL, NULL);
		return 0;
	}
	if (parent < 0)
		return refuse(a, act, errno, err);

	const struct way way = { .parent = parent, .path = (char *)act->place.path, .name = last };

	staged_name(act->number, name);
	if (APPLY_STEP(a, "workspace.apply.out", err) < 0)
		return -1;
	if (FENCE_OFF("workspace.apply.exchange")) {
		if (unlinkat(parent, last, 0) < 0 && errno != ENOENT)
			return refuse(a, act, errno, err);
		act_conclude(a, act, act->fate, NULL, act->reason);
		return 0;
	}
	if (renameat(parent, last, a->staging.fd, name) == 0)
		return check_removed(a, act, &way, err);
	if (errno != ENOENT)
		return refuse(a, act, errno, err);
	act_conclude(a, act, FATE_SAME, NULL, NULL);
	return 0;
}

static int remove_dir(struct apply *a, struct act *act, struct error *err)
{
	const char *last;
	_cleanup_close_ int parent = host_open_parent(a->workspace_fd, act->place.path, &last);

	if (APPLY_STEP(a, "workspace.apply.rmdir", err) < 0)
		return -1;
	if (parent >= 0 && unlinkat(parent, last, AT_REMOVEDIR) == 0)
		act_conclude(a, act, act->fate, NULL, act->reason);
	else if (errno == ENOENT)
		act_conclude(a, act, FATE_SAME, NULL, NULL);
	else if (errno == ENOTEMPTY || errno == EEXIST)
		act_conclude(a, act, FATE_KEPT_HOST, NULL,
			     "the directory is not empty on the host");
	else if (errno == ENOTDIR || errno == ELOOP)
		act_conclude(a, act, FATE_KEPT_HOST, NULL, RACED);
	else
		return refuse(a, act, errno, err);
	return 0;
}

/*
 * The mode alone, on the file itself: its content stays whatever it is. By descriptor, so that a
 * link put there meanwhile is not followed.
 */
static int change_mode(struct apply *a, struct act *act, struct error *err)
{
	const char *last;
	_cleanup_close_ int parent = host_open_parent(a->workspace_fd, act->place.path, &last);
	_cleanup_close_ int fd =
		parent < 0 ? -1 : openat(parent, last, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	char self[64];

	if (APPLY_STEP(a, "workspace.apply.mode", err) < 0)
		return -1;
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    ((st.st_mode ^ act->expected.mode) & 07777)) {
		act_conclude(a, act, FATE_KEPT_HOST, NULL, RACED);
		return 0;
	}
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	if (chmod(self, act->place.mode & 0777) < 0)
		return refuse(a, act, errno, err);
	act_conclude(a, act, act->fate, NULL, act->reason);
	return 0;
}

int act_perform(struct apply *a, struct act *act, struct error *err)
{
	switch (act->kind) {
	case ACT_PUT:
		return put(a, act, err);
	case ACT_SWAP:
		return swap(a, act, err);
	case ACT_REMOVE:
		return remove_file(a, act, err);
	case ACT_RMDIR:
		return remove_dir(a, act, err);
	case ACT_CHMOD:
		return change_mode(a, act, err);
	}
	return error_set(err, ERR_INTERNAL, "an act of an unknown kind");
}

static bool is_there(const struct apply *a, const char *name)
{
	struct stat st;

	return fstatat(a->staging.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* What is under the number is the host's, or ours if it never went in or came back. */
static int resume_displaced(struct apply *a, struct act *act, struct error *err)
{
	_cleanup_(way_clear) struct way way = { .parent = -1 };

	if (apply_find_way(a, act->place.path, &way, err) < 0)
		return -1;
	/* Nothing leads there any more: what came out stays in the staging directory. */
	if (way.parent < 0)
		return error_errno(err, way.errnum, "go on with %s", act->place.path);
	if (act->kind == ACT_REMOVE)
		return check_removed(a, act, &way, err);
	return a->staging.can_exchange ? check_swapped(a, act, &way, err)
				       : check_taken_out(a, act, &way, err);
}

static int resume_swap(struct apply *a, struct act *act, bool *done, struct error *err)
{
	char name[STAGED_NAME_SIZE], out[STAGED_NAME_SIZE];

	staged_name(act->number, name);
	out_name(act, out);
	if (is_there(a, out)) {
		if (is_there(a, name)) /* taken out, nothing put in yet */
			return resume_displaced(a, act, err);
		if (renameat(a->staging.fd, out, a->staging.fd, name) < 0)
			return error_errno(err, errno, "keep the former %s", act->place.path);
		act_conclude(a, act, act->fate, NULL, act->reason);
		return 0;
	}
	if (is_there(a, name) && !is_ours(a, act)) {
		if (a->staging.can_exchange)
			return resume_displaced(a, act, err);
		act_conclude(a, act, act->fate, NULL, act->reason);
		return 0;
	}
	*done = false;
	return staging_discard(&a->staging, act->number, err);
}

int act_resume(struct apply *a, struct act *act, const struct journal_intent *intent, bool *done,
	       struct error *err)
{
	char name[STAGED_NAME_SIZE];

	staged_name(act->number, name);
	act->kind = intent->act;
	act->fate = (enum change_fate)intent->fate;
	act->dev = intent->dev;
	act->ino = intent->ino;
	if (act->expected.type == TREE_FILE && intent->expected &&
	    hex_decode(act->expected.sha256, intent->expected, TREE_HASH_SIZE))
		act->expected.flags |= TREE_HAS_HASH;
	*done = true;
	switch (act->kind) {
	case ACT_SWAP:
		return resume_swap(a, act, done, err);
	case ACT_REMOVE:
		if (is_there(a, name))
			return resume_displaced(a, act, err);
		break;
	case ACT_PUT:
		if (!is_there(a, name)) {
			_cleanup_free_ char *path =
				xstrdup(intent->path ? intent->path : act->place.path);

			conclude_put(a, act, path);
			return 0;
		}
		break;
	case ACT_RMDIR:
	case ACT_CHMOD:
		break;
	}
	*done = false;
	return act->kind == ACT_PUT ? staging_discard(&a->staging, act->number, err) : 0;
}
