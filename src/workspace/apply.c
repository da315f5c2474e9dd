/*
 * Applying, as a whole. Additions and modifications come first, in order, deletions after them, in
 * reverse: a file that was moved is never in neither place, and a directory is empty when its turn
 * comes. Changes are taken in batches: looked at, made in the staging directory, synced and written
 * to the journal together, then done one by one.
 */
#include "workspace/apply.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"
#include "workspace/apply_internal.h"
#include "workspace/merge.h"

#define BATCH_ACTS 256
#define BATCH_BYTES ((uint64_t)64 << 20)

struct batch {
	struct act acts[BATCH_ACTS];
	size_t count;
	uint64_t bytes;
};

/* A change that waits for the second pass. */
struct later {
	uint32_t number;
	struct manifest_cursor at; /* the next it yields */
};

struct pass {
	struct apply *a;
	struct batch *batch;
	struct later *later;
	size_t later_count, later_cap;
	struct scan_progress progress;
};

/* --- looking --- */

/* .git is git's own matter (git/git.h), in the root and in any directory; .berth is ours. */
static const char *forbidden(const char *path)
{
	if (tree_path_is_within(path, strlen(path), ".berth", 6))
		return "it is Berth's own directory";
	for (const char *part = path; part; part = strchr(part, '/')) {
		part += *part == '/';
		if (strncasecmp(part, ".git", 4) == 0 && (part[4] == '\0' || part[4] == '/'))
			return "nothing under a .git directory is taken from a place";
	}
	return NULL;
}

static bool link_escapes(const struct tree_entry *link)
{
	long depth = 0;

	if (link->type != TREE_SYMLINK)
		return false;
	if (link->target[0] == '/')
		return true;
	for (const char *p = link->path; (p = strchr(p, '/')); p++)
		depth++;
	for (const char *p = link->target; *p;) {
		size_t len = strcspn(p, "/");

		if (len == 2 && p[0] == '.' && p[1] == '.') {
			if (--depth < 0)
				return true;
		} else if (len && !(len == 1 && p[0] == '.')) {
			depth++;
		}
		p += len;
		p += *p == '/';
	}
	return false;
}

static char *remark(const struct act *act, const struct host_view *host)
{
	if (link_escapes(&act->place))
		return xstrdup("kept unchanged: a link that leads out of the workspace");
	if (act->kind == ACT_SWAP && act->expected.type == TREE_FILE && host->st.st_nlink > 1)
		return xstrdup("the host's file has other names (hard links), which keep the old "
			       "content");
	if (act->place.type == TREE_FILE && act->place.links > 1)
		return xstrdup("a hard link in the place, a file of its own here");
	return NULL;
}

/* Of the file that is replaced, else of the directory it will be in. */
static void find_owner(const struct apply *a, const char *path, const struct host_view *host,
		       struct staged_owner *owner)
{
	_cleanup_free_ char *dir = xstrdup(path);
	struct stat st;

	if (geteuid() != 0)
		return;
	if (host->entry.type != TREE_NONE) {
		*owner = (struct staged_owner){ true, host->st.st_uid, host->st.st_gid };
		return;
	}
	for (;;) {
		char *slash = strrchr(dir, '/');

		*(slash ? slash : dir) = '\0';

		_cleanup_close_ int fd = host_open_dir(a->workspace_fd, dir, O_PATH);

		if (fd >= 0 && fstat(fd, &st) == 0) {
			*owner = (struct staged_owner){ true, st.st_uid, st.st_gid };
			return;
		}
		if (!slash)
			return;
	}
}

/* What is to come out must be known to the byte. False: it cannot be, so it counts as changed. */
static bool know_expected(struct apply *a, const struct tree_entry *base, struct act *act,
			  struct host_view *host)
{
	act->expected = host->entry;
	if (host->entry.type == TREE_SYMLINK) /* the view is gone when it is needed */
		act->expected = *base;
	if (host->entry.type != TREE_FILE || (host->entry.flags & TREE_HAS_HASH))
		return true;
	if ((base->flags & TREE_HAS_HASH) && tree_entry_same_state(base, &host->entry))
		memcpy(host->entry.sha256, base->sha256, TREE_HASH_SIZE);
	else if (!host_hash_path(a->workspace_fd, act->place.path, host))
		return false;
	act->expected = host->entry;
	act->expected.flags |= TREE_HAS_HASH;
	return true;
}

static enum journal_act choose_act(const struct tree_entry *base, const struct tree_entry *place,
				   const struct tree_entry *host)
{
	if (place->type == TREE_NONE)
		return host->type == TREE_DIR ? ACT_RMDIR : ACT_REMOVE;
	if (host->type == TREE_NONE)
		return ACT_PUT;
	if (host->type == TREE_FILE && change_kind_of(base, place) == CHANGE_MODE)
		return ACT_CHMOD;
	return ACT_SWAP;
}

static enum merge_verdict decide(struct apply *a, const struct tree_entry *base, struct act *act,
				 struct host_view *host)
{
	enum merge_verdict verdict;

	if (merge_wants_hash(base, &act->place, &host->entry))
		host_hash_path(a->workspace_fd, act->place.path, host);
	verdict = merge_decide(base, &act->place, &host->entry);
	if (verdict != MERGE_TAKE)
		return verdict;
	act->kind = choose_act(base, &act->place, &host->entry);
	act->fate = FATE_APPLIED;
	if ((act->kind == ACT_SWAP || act->kind == ACT_REMOVE) &&
	    !know_expected(a, base, act, host))
		return act->place.type == TREE_NONE ? MERGE_KEEP_HOST : MERGE_KEEP_BOTH;
	if (act->kind == ACT_CHMOD)
		act->expected = host->entry;
	return MERGE_TAKE;
}

static const char *why_conflict(const struct host_view *host)
{
	return host->entry.type == TREE_NONE ? "deleted on the host, changed in the place"
					     : "changed on the host and in the place";
}

/*
 * What is to be done with one change: an outcome without an act (*acts false), or an act that is
 * ready to be made.
 */
static int look(struct apply *a, const struct tree_entry *place, uint32_t number, struct act *act,
		bool *acts, struct error *err)
{
	const char *no = forbidden(place->path);
	struct journal_intent intent;
	struct tree_entry base;
	struct host_view host = { 0 };

	*act = (struct act){ .number = number, .place = *place };
	*acts = false;
	if (no || host_look(a->workspace_fd, place->path, &host) < 0) {
		if (!no && apply_is_fatal(errno))
			return error_errno(err, errno, "look at %s", place->path);
		act_conclude(a, act, FATE_REFUSED, NULL, no ? no : apply_refusal(errno));
		return 0;
	}
	change_base(a->base, place, &base);
	switch (decide(a, &base, act, &host)) {
	case MERGE_NOTHING:
		/* Begun by us before a crash, and done. */
		act_conclude(a, act,
			     journal_intent(a->journal, number, &intent)
				     ? (enum change_fate)intent.fate
				     : FATE_SAME,
			     NULL, NULL);
		return 0;
	case MERGE_KEEP_HOST:
		act_conclude(a, act, FATE_KEPT_HOST, NULL,
			     "changed on the host, deleted in the place");
		return 0;
	case MERGE_KEEP_BOTH:
		act->kind = ACT_PUT;
		act->beside = true;
		act->reason = xstrdup(why_conflict(&host));
		break;
	case MERGE_TAKE:
		act->reason = guard_change(a, place, &host.entry);
		if (!act->reason) {
			act->reason = remark(act, &host);
			break;
		}
		if (place->type == TREE_NONE) {
			act_conclude(a, act, FATE_HELD, NULL, act->reason);
			return 0;
		}
		act->kind = ACT_PUT;
		act->beside = true;
		act->fate = FATE_HELD;
		break;
	}
	find_owner(a, place->path, act->kind == ACT_SWAP ? &host : &(struct host_view){ 0 },
		   &act->owner);
	*acts = true;
	return 0;
}

/* --- batches --- */

static void batch_clear(struct batch *batch)
{
	for (size_t i = 0; i < batch->count; i++)
		act_clear(&batch->acts[i]);
	batch->count = 0;
	batch->bytes = 0;
}

static void batch_free(struct batch **batch)
{
	batch_clear(*batch);
	free(*batch);
}

static void intend(struct apply *a, const struct act *act)
{
	char hex[2 * TREE_HASH_SIZE + 1];
	bool hashed = act->expected.type == TREE_FILE && (act->expected.flags & TREE_HAS_HASH);

	if (hashed)
		hex_encode(hex, act->expected.sha256, TREE_HASH_SIZE);
	journal_add_intent(a->journal, &(struct journal_intent){
					       .number = act->number,
					       .act = act->kind,
					       .fate = act->fate,
					       .dev = act->dev,
					       .ino = act->ino,
					       .expected = hashed ? hex : NULL,
				       });
}

static int flush(struct pass *p, struct error *err)
{
	struct apply *a = p->a;

	if (!p->batch->count)
		return 0;
	if (APPLY_STEP(a, "workspace.apply.made", err) < 0 || staging_sync(&a->staging, err) < 0)
		return -1;
	for (size_t i = 0; i < p->batch->count; i++) {
		/* What goes beside has its intent when the name is found. */
		if (!p->batch->acts[i].beside)
			intend(a, &p->batch->acts[i]);
	}
	if (journal_sync(a->journal, err) < 0 || APPLY_STEP(a, "workspace.apply.intended", err) < 0)
		return -1;
	for (size_t i = 0; i < p->batch->count; i++) {
		if (act_perform(a, &p->batch->acts[i], err) < 0 ||
		    APPLY_STEP(a, "workspace.apply.done", err) < 0)
			return -1;
		if (p->batch->acts[i].place.type == TREE_FILE)
			p->progress.bytes += p->batch->acts[i].place.size;
		p->progress.files++;
	}
	if (a->options->progress)
		a->options->progress(a->options->progress_arg, &p->progress);
	batch_clear(p->batch);
	return 0;
}

static bool needs_staging(const struct act *act)
{
	return act->kind == ACT_PUT || act->kind == ACT_SWAP;
}

/* Contents that are damaged on this host's disk cost that file, not the rest. */
static int make(struct apply *a, struct act *act, bool *made, struct error *err)
{
	_cleanup_error_ struct error why = { 0 };

	*made = true;
	if (!needs_staging(act) || staging_make(&a->staging, a->run_fd, act->number, &act->place,
						&act->owner, &act->dev, &act->ino, &why) == 0)
		return 0;
	*made = false;
	if (why.code == ERR_DISK_FULL || apply_is_fatal(why.errnum)) {
		error_move(err, &why);
		return error_wrap(err, "apply %s", act->place.path);
	}
	if (staging_discard(&a->staging, act->number, err) < 0)
		return -1;
	act_conclude(a, act, FATE_REFUSED, NULL, why.message);
	return 0;
}

static bool is_cancelled(const struct apply *a)
{
	struct pollfd p = { .fd = a->options->cancel_fd, .events = POLLIN };

	return p.fd >= 0 && poll(&p, 1, 0) > 0;
}

static int add(struct pass *p, const struct tree_entry *place, uint32_t number, struct error *err)
{
	struct act *act = &p->batch->acts[p->batch->count];
	struct journal_outcome outcome;
	bool acts;

	if (journal_outcome(p->a->journal, number, &outcome))
		return 0;
	if (is_cancelled(p->a))
		return error_set(err, ERR_CANCELLED,
				 "collecting was cancelled; collect again to continue");
	if (look(p->a, place, number, act, &acts, err) < 0)
		return -1;
	if (acts && make(p->a, act, &acts, err) < 0) {
		act_clear(act);
		return -1;
	}
	if (!acts) {
		act_clear(act);
		return 0;
	}
	p->batch->count++;
	p->batch->bytes += place->type == TREE_FILE ? place->size : 0;
	if (p->batch->count == BATCH_ACTS || p->batch->bytes >= BATCH_BYTES)
		return flush(p, err);
	return 0;
}

/* --- passes --- */

static void put_off(struct pass *p, uint32_t number, struct manifest_cursor at)
{
	if (p->later_count == p->later_cap) {
		p->later_cap = p->later_cap ? p->later_cap * 2 : 64;
		p->later = xreallocarray(p->later, p->later_cap, sizeof(*p->later));
	}
	p->later[p->later_count++] = (struct later){ number, at };
}

static bool is_dir_to_other(const struct apply *a, const struct tree_entry *place)
{
	struct tree_entry base;

	change_base(a->base, place, &base);
	return base.type == TREE_DIR && place->type != TREE_DIR;
}

static int put_in(struct pass *p, struct error *err)
{
	struct manifest_cursor cursor = { .m = p->a->changes }, before = cursor;
	struct tree_entry place;

	for (uint32_t number = 0; manifest_next(&cursor, &place); number++, before = cursor) {
		if (place.type == TREE_NONE || is_dir_to_other(p->a, &place))
			put_off(p, number, before);
		else if (add(p, &place, number, err) < 0)
			return -1;
	}
	return flush(p, err);
}

static int take_out(struct pass *p, struct error *err)
{
	struct tree_entry place;

	for (size_t i = p->later_count; i--;) {
		struct manifest_cursor at = p->later[i].at;

		manifest_next(&at, &place);
		/* What replaces a directory looks whether it is empty: it must be by then. */
		if (place.type != TREE_NONE && flush(p, err) < 0)
			return -1;
		if (add(p, &place, p->later[i].number, err) < 0)
			return -1;
	}
	return flush(p, err);
}

/* Directories that their owner may not write to get their mode when everything is in them. */
static int close_dirs(struct pass *p, struct error *err)
{
	struct manifest_cursor cursor = { .m = p->a->changes };
	struct journal_outcome outcome;
	struct tree_entry place;
	struct stat st;

	for (uint32_t number = 0; manifest_next(&cursor, &place); number++) {
		if (place.type != TREE_DIR || (place.mode & 0700) == 0700 ||
		    !journal_outcome(p->a->journal, number, &outcome) ||
		    (outcome.fate != FATE_APPLIED && outcome.fate != FATE_CONFLICT &&
		     outcome.fate != FATE_HELD))
			continue;

		_cleanup_close_ int fd = host_open_dir(
			p->a->workspace_fd, outcome.beside ? outcome.beside : place.path, O_RDONLY);

		/* Only if it still is as we made it. */
		if (fd >= 0 && fstat(fd, &st) == 0 &&
		    (st.st_mode & 07777) == ((place.mode & 0777) | 0700) &&
		    fchmod(fd, place.mode & 0777) < 0)
			return error_errno(err, errno, "set the mode of %s", place.path);
	}
	return 0;
}

static int resume_all(struct apply *a, struct error *err)
{
	struct manifest_cursor cursor = { .m = a->changes };
	struct journal_intent intent;
	struct tree_entry place;
	bool resumed = false;

	for (uint32_t number = 0; manifest_next(&cursor, &place); number++) {
		_cleanup_(act_clear) struct act act = { .number = number, .place = place };
		bool done;

		if (!journal_intent(a->journal, number, &intent))
			continue;
		resumed = true;
		change_base(a->base, &place, &act.expected);
		find_owner(a, place.path, &(struct host_view){ 0 }, &act.owner);
		if (act_resume(a, &act, &intent, &done, err) < 0)
			return -1;
	}
	return resumed ? apply_sync(a, err) : 0;
}

static int run_passes(struct apply *a, struct error *err)
{
	_cleanup_(batch_free) struct batch *batch = xcalloc(1, sizeof(*batch));
	struct pass p = { .a = a, .batch = batch };
	int r = 0;

	if (resume_all(a, err) < 0 || put_in(&p, err) < 0 || take_out(&p, err) < 0 ||
	    close_dirs(&p, err) < 0)
		r = -1;
	free(p.later);
	/* Also after an error: what was done is known the next time without looking. */
	if (apply_sync(a, r == 0 ? err : NULL) < 0)
		r = -1;
	return r;
}

/* --- the whole --- */

struct tell {
	change_fn *fn;
	void *arg;
	struct apply_report *report;
};

static int tell_change(void *arg, const struct change *change, struct error *err)
{
	struct tell *t = arg;

	apply_count(t->report, change);
	return t->fn ? t->fn(t->arg, change, err) : 0;
}

static void apply_close(struct apply *a)
{
	journal_close(a->journal);
	if (a->staging.path)
		staging_close(&a->staging);
	manifest_close(a->base);
	manifest_close(a->changes);
	close_fdp(&a->workspace_fd);
	close_fdp(&a->run_fd);
}

static int open_workspace(struct apply *a, const struct workspace_state *state, struct error *err)
{
	const char *path = state->worktree ? state->worktree : state->path;

	a->workspace_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (a->workspace_fd < 0)
		return error_errno(err, errno, "the workspace %s", path);
	return 0;
}

static int open_manifests(struct apply *a, struct error *err)
{
	if (manifest_open(a->run_fd, RESULTS_CHANGES, &a->changes, err) < 0 ||
	    manifest_open(a->run_fd, RESULTS_BASE, &a->base, err) < 0)
		return error_wrap(err, "the results of the run");
	return manifest_count(a->changes) < UINT32_MAX
		       ? 0
		       : error_set(err, ERR_TOO_LARGE, "too many changes");
}

static int open_journal(struct apply *a, struct error *err)
{
	uint64_t dev, ino;
	const char *known;

	if (journal_open(a->run_fd, (uint32_t)manifest_count(a->changes), !a->options->dry_run,
			 &a->journal, err) < 0)
		return -1;
	journal_retry(a->journal, FATE_REFUSED);
	if (a->options->dry_run)
		return 0;
	known = journal_staging(a->journal, &dev, &ino);
	/* Somebody removed it: what was under way in it is to be decided anew. */
	if (!known || dev != a->staging.dev || ino != a->staging.ino)
		journal_add_staging(a->journal, a->staging.path, a->staging.dev, a->staging.ino);
	return 0; /* it is synced with the first intents, before anything is moved */
}

/* Decisions alone, into a journal that is never written. */
static int foretell(struct apply *a, struct error *err)
{
	struct manifest_cursor cursor = { .m = a->changes };
	struct journal_outcome outcome;
	struct tree_entry place;

	for (uint32_t number = 0; manifest_next(&cursor, &place); number++) {
		_cleanup_(act_clear) struct act act = { 0 };
		bool acts;

		if (journal_outcome(a->journal, number, &outcome))
			continue;
		if (is_cancelled(a))
			return error_set(err, ERR_CANCELLED, "cancelled");
		if (look(a, &place, number, &act, &acts, err) < 0)
			return -1;
		if (!acts)
			continue;

		_cleanup_free_ char *beside =
			act.beside ? apply_beside(place.path, a->tag, 0) : NULL;

		act_conclude(a, &act, act.beside ? act_fate_beside(&act) : act.fate, beside,
			     act.reason);
	}
	return 0;
}

static int open_all(struct apply *a, const struct results *results,
		    const struct workspace_state *state, struct error *err)
{
	if (results_dir(results, state->run_id, false, &a->run_fd, err) < 0 ||
	    open_manifests(a, err) < 0 || open_workspace(a, state, err) < 0)
		return -1;
	if (manifest_count(a->changes) == 0)
		return 0;
	if (!a->options->dry_run && staging_open(a->workspace_fd, state->run_id, STAGING_WAIT_MS,
						 a->options->cancel_fd, &a->staging, err) < 0)
		return error_wrap(err, "collect into %s", state->path);
	return open_journal(a, err);
}

int results_apply(const struct results *results, struct workspace_state *state,
		  const struct apply_options *options, change_fn *fn, void *arg,
		  struct apply_report *report, struct error *err)
{
	_cleanup_(apply_close) struct apply a = {
		.options = options,
		.run_fd = -1,
		.workspace_fd = -1,
		.staging = { .root_fd = -1, .fd = -1, .lock_fd = -1 },
	};
	struct tell tell = { fn, arg, report };

	a.careful = state->careful;
	memset(report, 0, sizeof(*report));
	memcpy(a.tag, state->run_id + strlen(state->run_id) - (APPLY_TAG_SIZE - 1),
	       APPLY_TAG_SIZE - 1);
	if (open_all(&a, results, state, err) < 0)
		return -1;
	if (manifest_count(a.changes) == 0)
		return 0;
	if ((options->dry_run ? foretell(&a, err) : run_passes(&a, err)) < 0)
		return -1;
	return changes_walk(a.base, a.changes, a.journal, tell_change, &tell, err);
}
