/*
 * Mode copy. Three lists in one order are merged: the host's tree (the plan), the repository's
 * files, and what the place has. What is only in the place is removed, what differs is put, the
 * rest stays. On the way two manifests come about: `base`, the host's identities with the hashes of
 * exactly the bytes that are in the place; and `place`, the same tree with the place's identities,
 * which is remembered for the place's next run.
 *
 * Both are usually what they were, and are then not written again but shared: `base` is the plan
 * as long as nothing was sent that differs from it, `place` is the one remembered as long as
 * nothing was put.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "base/mem.h"
#include "base/owner.h"
#include "base/path.h"
#include "base/text.h"
#include "git/hidden.h"
#include "workspace/hasher.h"
#include "workspace/place_changes.h"
#include "workspace/stage_internal.h"

#define PLAN_NAME ".plan"
#define DRIFT_NAME ".drift"
#define MEMORY_NAME "place"
#define GIT_NAME ".git"

struct copy {
	struct stage *s;
	struct manifest *plan, *before, *drift;
	uint64_t begin; /* the host's file clock before the scan */
	struct owner owner;

	struct place_cursor there;
	struct tree_entry at; /* of the place, if has_at */
	bool has_at, at_known;
	struct buf doomed; /* directories to be removed once their content is: path, NUL, ... */

	struct tree_writer *put;
	struct send_queue outbox;
	bool touched;       /* the place's manifest is not `before` any more */
	uint64_t base_same; /* entries of the plan that stand */
	struct manifest_writer *base;
};

static void advance(struct copy *c)
{
	c->has_at = place_cursor_next(&c->there, &c->at, &c->at_known);
}

/* From here on the place's manifest is written anew, beginning with what stayed before `path`. */
static int touch(struct copy *c, const char *path, size_t len, struct error *err)
{
	struct manifest_cursor cursor = { .m = c->before };
	struct tree_entry entry;

	if (c->touched)
		return 0;
	c->touched = true;
	if (manifest_create(c->s->run_fd, RESULTS_PLACE, &c->outbox.place, err) < 0)
		return -1;
	manifest_temporary(c->outbox.place); /* until all is put */
	while (manifest_next(&cursor, &entry) &&
	       tree_path_compare(entry.path, entry.path_len, path, len) < 0)
		if (manifest_add(c->outbox.place, &entry, err) < 0)
			return -1;
	return 0;
}

/* What the place has at c->at stays. It may be right without having been put by us. */
static int keep_at(struct copy *c, struct error *err)
{
	if (!c->at_known && touch(c, c->at.path, c->at.path_len, err) < 0)
		return -1;
	if (c->touched && send_queue_keep(&c->outbox, &c->at, err) < 0)
		return -1;
	advance(c);
	return 0;
}

/* ---- removing ---- */

/* Directories whose content is behind us go, the innermost first. */
static int remove_doomed(struct copy *c, const char *path, size_t len, struct error *err)
{
	while (c->doomed.len > 0) {
		const char *end = c->doomed.data + c->doomed.len - 1;
		const char *start = memrchr(c->doomed.data, '\0', c->doomed.len - 1);

		start = start ? start + 1 : c->doomed.data;
		if (path && tree_path_is_within(path, len, start, (size_t)(end - start)))
			return 0;
		if (tree_writer_remove(c->put, start, err) < 0)
			return -1;
		c->doomed.len = (size_t)(start - c->doomed.data);
	}
	return 0;
}

/* What the place has at c->at and the tree has not. */
static int remove_at(struct copy *c, struct error *err)
{
	if (touch(c, c->at.path, c->at.path_len, err) < 0 ||
	    remove_doomed(c, c->at.path, c->at.path_len, err) < 0)
		return -1;
	if (c->at.type == TREE_DIR) {
		buf_append(&c->doomed, c->at.path, c->at.path_len + 1);
		c->s->removed++;
	} else if (c->at.type != TREE_NONE) {
		if (tree_writer_remove(c->put, c->at.path, err) < 0)
			return -1;
		c->s->removed++;
	}
	advance(c);
	return stage_tick(c->s, err);
}

/* Everything of the place before the path goes. True in *there: it has something at the path. */
static int reach(struct copy *c, const char *path, size_t len, bool *there, struct error *err)
{
	*there = false;
	while (c->has_at) {
		int order = tree_path_compare(c->at.path, c->at.path_len, path, len);

		*there = order == 0;
		if (order >= 0)
			break;
		if (remove_at(c, err) < 0)
			return -1;
	}
	return remove_doomed(c, path, len, err);
}

/* ---- putting ---- */

static bool is_there(const struct copy *c, const struct tree_entry *entry)
{
	const struct tree_entry *at = &c->at;

	if (at->type != entry->type || at->flags & TREE_UNREADABLE)
		return false;
	if (entry->type == TREE_SYMLINK)
		return tree_entry_same_content(at, entry);
	if (at->mode != (entry->mode & 0777))
		return false;
	return entry->type == TREE_DIR || (c->at_known && at->size == entry->size &&
					   (at->flags & entry->flags & TREE_HAS_HASH) &&
					   memcmp(at->sha256, entry->sha256, TREE_HASH_SIZE) == 0);
}

static int put_plain(struct copy *c, const struct tree_entry *entry, struct error *err)
{
	struct tree_entry bare = *entry;

	bare.mode &= 0777;
	bare.dev = bare.ino = bare.ctime_ns = 0;
	if (touch(c, entry->path, entry->path_len, err) < 0)
		return -1;
	if (entry->type == TREE_SYMLINK)
		return tree_writer_symlink(c->put, entry, err) < 0
			       ? -1
			       : send_queue_keep(&c->outbox, &bare, err);
	send_queue_expect(&c->outbox, &bare);
	return tree_writer_dir(c->put, entry, err);
}

static int copy_base(struct copy *c, struct error *err)
{
	struct manifest_cursor cursor = { .m = c->plan };
	struct tree_entry entry;

	if (c->base)
		return 0;
	if (manifest_create(c->s->run_fd, RESULTS_BASE, &c->base, err) < 0)
		return -1;
	manifest_racy_from(c->base, c->begin);
	manifest_temporary(c->base);
	for (uint64_t i = 0; i < c->base_same && manifest_next(&cursor, &entry); i++)
		if (manifest_add(c->base, &entry, err) < 0)
			return -1;
	return 0;
}

/* `now` is what the plan's next entry turned out to be; NULL: not there. */
static int settle(struct copy *c, const struct tree_entry *planned, const struct tree_entry *now,
		  struct error *err)
{
	struct stage *s = c->s;
	bool stands =
		now && (planned->type != TREE_FILE || (tree_entry_same_state(planned, now) &&
						       tree_entry_same_content(planned, now)));

	if (now) {
		s->files += now->type == TREE_FILE;
		s->dirs += now->type == TREE_DIR;
		s->symlinks += now->type == TREE_SYMLINK;
		s->bytes += now->size;
	}
	if (stands && !c->base) {
		c->base_same++;
		return 0;
	}
	if (copy_base(c, err) < 0)
		return -1;
	return now ? manifest_add(c->base, now, err) : 0;
}

static int open_planned(void *arg, const struct tree_entry *entry)
{
	const struct copy *c = arg;
	_cleanup_(owner_leave) struct owner_rights as = { 0 };

	if (owner_take(&c->owner, &as, NULL) < 0) {
		errno = EACCES;
		return -1;
	}
	return path_open_unlinked(c->s->root_fd, entry->path,
				  O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
}

static int put_planned_file(struct copy *c, const struct tree_entry *planned, bool there,
			    struct error *err)
{
	struct tree_entry now = *planned;
	struct stage *s = c->s;
	enum sent sent;

	if (touch(c, planned->path, planned->path_len, err) < 0 ||
	    send_file(s, c->put, &c->outbox, open_planned, c, &now, &sent, err) < 0)
		return -1;
	if (sent == SENT_UNREADABLE)
		stage_skip(s, planned->path, "it may not be read");
	if (sent == SENT_CHANGING)
		stage_skip(s, planned->path, "it changed while it was read; the copy may be torn");
	if (sent == SENT_WHOLE || sent == SENT_CHANGING) {
		s->sent++;
		s->sent_bytes += now.size;
		return settle(c, planned, &now, err);
	}
	if (there && tree_writer_remove(c->put, planned->path, err) < 0)
		return -1;
	return settle(c, planned, NULL, err);
}

static int put_planned(struct copy *c, const struct tree_entry *planned, struct error *err)
{
	bool there;

	if (reach(c, planned->path, planned->path_len, &there, err) < 0)
		return -1;
	c->s->now.files += planned->type == TREE_FILE;
	if (there && is_there(c, planned)) {
		if (keep_at(c, err) < 0)
			return -1;
		c->s->now.bytes += planned->size;
		return settle(c, planned, planned, err) < 0 ? -1 : stage_tick(c->s, err);
	}

	int rc = planned->type == TREE_FILE ? put_planned_file(c, planned, there, err)
					    : put_plain(c, planned, err);

	if (rc == 0 && planned->type != TREE_FILE)
		rc = settle(c, planned, planned, err);
	if (there)
		advance(c);
	return rc < 0 ? -1 : stage_tick(c->s, err);
}

/* ---- the repository ---- */

struct git_source {
	const struct copy *c;
	const struct git_file *file;
};

static int open_source(void *arg, const struct tree_entry *entry)
{
	const struct git_source *source = arg;
	struct error err = { 0 };
	int fd = -1;

	(void)entry;
	if (git_open_source(source->c->s->root_fd, source->file->source, source->file->entry.size,
			    &fd, &err) == 0)
		return fd;
	errno = err.errnum ? err.errnum : ESTALE;
	error_clear(&err);
	return -1;
}

/* A file that may change has to be read to be compared: there are few, and they are small. */
static int hash_source(struct git_source *source, struct tree_entry *entry, struct error *err)
{
	_cleanup_close_ int fd = open_source(source, entry);

	if (fd < 0)
		return 0; /* sending it will tell */
	return hash_file(fd, source->c->s->act->cancel_fd, entry, err) < 0 ? -1 : 0;
}

static int put_git_file(struct copy *c, const struct git_file *file, struct tree_entry *entry,
			struct error *err)
{
	struct git_source source = { .c = c, .file = file };
	enum sent sent;

	if (touch(c, entry->path, entry->path_len, err) < 0)
		return -1;
	c->s->sent++;
	c->s->sent_bytes += entry->size;
	if (file->content || entry->size == 0)
		return send_content(c->s, c->put, &c->outbox, file->content, entry, err);
	if (send_file(c->s, c->put, &c->outbox, open_source, &source, entry, &sent, err) < 0)
		return -1;
	if (sent == SENT_WHOLE)
		return 0;
	c->s->again = true;
	return error_set(err, ERR_CONFLICT,
			 "the repository changed while it was staged (%s): try again", entry->path);
}

static int put_git(void *arg, const struct git_file *file, struct error *err)
{
	struct copy *c = arg;
	struct tree_entry entry = file->entry;
	struct git_source source = { .c = c, .file = file };
	bool there;

	if (reach(c, entry.path, entry.path_len, &there, err) < 0 || stage_tick(c->s, err) < 0)
		return -1;

	bool same = there && file->immutable && c->at.type == TREE_FILE && c->at.size == entry.size;

	if (there && !same && c->at_known && entry.type == TREE_FILE && file->source &&
	    c->at.size == entry.size && hash_source(&source, &entry, err) < 0)
		return -1;
	if (same || (there && is_there(c, &entry)))
		return keep_at(c, err);
	entry = file->entry;

	int rc = entry.type == TREE_FILE ? put_git_file(c, file, &entry, err)
					 : put_plain(c, &entry, err);

	if (there)
		advance(c);
	return rc;
}

/* ---- all of it ---- */

static int merge(struct copy *c, struct error *err)
{
	struct manifest_cursor cursor = { .m = c->plan };
	struct stage *s = c->s;
	struct tree_entry planned;
	bool git_done = s->state->git == NULL;

	place_cursor_init(&c->there, c->before, c->drift);
	advance(c);
	while (manifest_next(&cursor, &planned)) {
		if (!git_done && tree_path_compare(planned.path, planned.path_len, GIT_NAME,
						   strlen(GIT_NAME)) > 0) {
			git_done = true;
			if (git_list(s->root_fd, s->path, s->act->cancel_fd, s->state->seen,
				     s->state->git, put_git, c, err) < 0)
				return -1;
		}
		if (put_planned(c, &planned, err) < 0)
			return -1;
	}
	if (!git_done && git_list(s->root_fd, s->path, s->act->cancel_fd, s->state->seen,
				  s->state->git, put_git, c, err) < 0)
		return -1;
	while (c->has_at)
		if (remove_at(c, err) < 0)
			return -1;
	return remove_doomed(c, NULL, 0, err);
}

static int put_all(struct copy *c, struct error *err)
{
	struct place_put options = {
		.root = c->s->act->place_root,
		.make_root = true,
		.only_ours = true,
		.written = send_queue_written,
		.arg = &c->outbox,
	};

	if (place_tree_put(c->s->act->place, &options, &c->put, err) < 0)
		return -1;
	if (merge(c, err) < 0 || FAULT_HERE("workspace.stage.put", err) < 0) {
		tree_writer_abandon(c->put);
		return -1;
	}
	if (tree_writer_commit(c->put, err) < 0)
		return -1;
	if (!send_queue_is_empty(&c->outbox))
		return error_set(err, ERR_PROTOCOL, "the place did not write all that was put");
	return 0;
}

/*
 * Both manifests outlive a crash before the state says that they are there. What is remembered of
 * the place needs no such care: a wrong memory is found out, and costs only time.
 */
static int commit_manifests(struct copy *c, int memory_fd, struct error *err)
{
	int run_fd = c->s->run_fd;

	if (c->base ? manifest_commit(steal(c->base), err) < 0
		    : manifest_lend(run_fd, PLAN_NAME, run_fd, RESULTS_BASE, err) < 0)
		return -1;
	/* Without a word about a single entry nothing was there and nothing is to be. */
	if (!c->touched && !c->before && touch(c, "", 0, err) < 0)
		return -1;
	if (c->touched ? manifest_commit(steal(c->outbox.place), err) < 0
		       : manifest_lend(memory_fd, MEMORY_NAME, run_fd, RESULTS_PLACE, err) < 0)
		return -1;
	if (manifest_sync(run_fd, RESULTS_BASE, err) < 0 ||
	    manifest_sync(run_fd, RESULTS_PLACE, err) < 0 || dir_sync(run_fd, err) < 0 ||
	    FAULT_HERE("workspace.stage.manifests", err) < 0)
		return -1;
	return manifest_lend(run_fd, RESULTS_PLACE, memory_fd, MEMORY_NAME, err);
}

/*
 * Where the last tree put into this place at this root is remembered. It is marked as used, so that
 * nobody sweeps it away meanwhile.
 */
static int open_memory(const struct stage *s, int *fd, struct error *err)
{
	_cleanup_free_ char *place = NULL, *name = NULL;
	int root_fd = s->engine->results.root_fd;
	char root[SHA256_HEX_SIZE];

	if (!path_is_segment(s->act->place->place_id))
		return error_set(err, ERR_BAD_PATH, "this is no place's id");
	sha256_hex(s->act->place_root, strlen(s->act->place_root), root);
	place = xasprintf("places/%s", s->act->place->place_id);
	name = xasprintf("%s/%.16s", place, root);
	if (utimensat(root_fd, place, NULL, 0) < 0)
		workspace_sweep(s->engine);
	if (dir_make(root_fd, name, 0700, err) < 0)
		return -1;
	return dir_open(root_fd, name, fd, err);
}

static int find_differences(struct copy *c, struct error *err)
{
	struct stage *s = c->s;
	_cleanup_buf_ struct buf rules = { 0 };
	struct place_changes_options options = {
		.place = s->act->place,
		.root = s->act->place_root,
		.before = c->before,
		.dir_fd = s->run_fd,
		.name = DRIFT_NAME,
		.cancel_fd = s->act->cancel_fd,
	};
	struct place_changes *drift = NULL;
	struct error ignored = { 0 };

	if (hidden_rules(s->root_fd, &rules, err) < 0)
		return -1;
	options.rules = buf_str(&rules);
	options.rules_len = rules.len;
	if (place_changes_start(&options, &drift, err) < 0)
		return -1;
	c->begin = workspace_file_clock(s->root_fd);
	/* Into a fresh place everything is sent, and hashed on the way. */
	if (stage_scan(s, c->before != NULL, PLAN_NAME, err) < 0) {
		place_changes_finish(drift, &ignored);
		error_clear(&ignored);
		return -1;
	}
	if (place_changes_finish(drift, err) < 0 ||
	    manifest_open(s->run_fd, PLAN_NAME, &c->plan, err) < 0)
		return -1;
	return manifest_open(s->run_fd, DRIFT_NAME, &c->drift, err);
}

static int copy_tree(struct copy *c, int memory_fd, struct error *err)
{
	struct stage *s = c->s;

	manifest_open(memory_fd, MEMORY_NAME, &c->before, NULL);
	if (find_differences(c, err) < 0 || FAULT_HERE("workspace.stage.scanned", err) < 0)
		return -1;
	s->now.step = "stage";
	s->now.files = s->now.bytes = 0;
	s->files = s->dirs = s->symlinks = s->bytes = 0; /* counted again as they settle */
	s->now.bytes_total = manifest_bytes(c->plan);
	if (put_all(c, err) < 0 || FAULT_HERE("workspace.stage.committed", err) < 0 ||
	    commit_manifests(c, memory_fd, err) < 0)
		return -1;
	workspace_cache(s->engine->cache_path, s->root_fd, s->run_fd, RESULTS_BASE);
	return 0;
}

int stage_copy(struct stage *s, struct error *err)
{
	struct copy c = { .s = s };
	_cleanup_close_ int memory_fd = -1;

	if (owner_of(s->root_fd, &c.owner, err) < 0 || open_memory(s, &memory_fd, err) < 0)
		return -1;

	int rc = copy_tree(&c, memory_fd, err);

	unlinkat(s->run_fd, PLAN_NAME, 0);
	unlinkat(s->run_fd, DRIFT_NAME, 0);
	manifest_close(c.plan);
	manifest_close(c.before);
	manifest_close(c.drift);
	manifest_abandon(c.base);
	send_queue_free(&c.outbox);
	buf_free(&c.doomed);
	return rc;
}
