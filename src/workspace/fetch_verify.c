#include <errno.h>
#include <string.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "workspace/collect_internal.h"

/* --- what does not show: directories and links, by asking for each --- */

/*
 * Rules of the place may hide what was staged (somebody wrote a .gitignore, or the file is tracked
 * although it is ignored): only what is not there is deleted.
 */
static int ask_for(struct fetch *f, const struct tree_entry *before, bool *there,
		   struct file_info *info, struct error *err)
{
	_cleanup_free_ char *path = path_join(f->state->place_root, before->path);
	_cleanup_error_ struct error why = { 0 };

	*there = place_file_stat(f->act->place, path, info, &why) == 0;
	if (*there || why.code == ERR_NOT_FOUND || why.errnum == ENOTDIR ||
	    why.code == ERR_BAD_PATH)
		return 0;
	error_move(err, &why);
	return error_wrap(err, "look for %s in the place", before->path);
}

static bool is_same_link(const struct tree_entry *before, const struct file_info *info)
{
	return str_equal(info->type, "symlink") && info->target &&
	       strlen(info->target) == before->target_len &&
	       memcmp(info->target, before->target, before->target_len) == 0;
}

struct known {
	struct fetch *f;
	struct manifest_writer *out;
	char gone[TREE_PATH_MAX + 1];
	size_t gone_len;
};

static int settle_other(struct known *k, struct tree_entry *e, const struct tree_entry *before,
			struct error *err)
{
	struct file_info info = { 0 };
	bool there;

	if (ask_for(k->f, before, &there, &info, err) < 0)
		return -1;
	if (!there) {
		e->links = 1;
		if (before->type == TREE_DIR) {
			memcpy(k->gone, e->path, e->path_len);
			k->gone_len = e->path_len;
		}
		return manifest_add(k->out, e, err);
	}

	struct tree_entry link = { .path = e->path, .path_len = e->path_len, .type = TREE_SYMLINK };
	int r = 0;

	if (before->type == TREE_SYMLINK && !is_same_link(before, &info) && info.target &&
	    info.target[0] && strlen(info.target) <= TREE_PATH_MAX) {
		link.target = info.target;
		link.target_len = (uint32_t)strlen(info.target);
		r = manifest_add(k->out, &link, err);
	}
	file_info_clear(&info);
	return r;
}

static int settle(struct known *k, struct tree_entry *e, struct error *err)
{
	struct tree_entry before;

	if (e->type != TREE_NONE || e->links)
		return manifest_add(k->out, e, err);
	if (k->gone_len && tree_path_is_within(e->path, e->path_len, k->gone, k->gone_len)) {
		e->links = 1;
		return manifest_add(k->out, e, err);
	}
	fetch_put_before(k->f, e, &before);
	return before.type == TREE_FILE ? manifest_add(k->out, e, err)
					: settle_other(k, e, &before, err);
}

static int settle_others(struct fetch *f, const char *from, const char *to, struct error *err)
{
	_cleanup_manifest_ struct manifest *in = NULL;
	struct known k = { .f = f };
	struct manifest_cursor cursor;
	struct tree_entry e;

	if (manifest_open(f->run_fd, from, &in, err) < 0 ||
	    manifest_create(f->run_fd, to, &k.out, err) < 0)
		return -1;
	manifest_temporary(k.out);
	cursor = (struct manifest_cursor){ .m = in };
	while (manifest_next(&cursor, &e)) {
		if (settle(&k, &e, err) < 0 || fetch_tick(f, err) < 0) {
			manifest_abandon(k.out);
			return -1;
		}
	}
	return manifest_commit(k.out, err);
}

/* --- files, by their hashes --- */

struct sure {
	struct fetch *f;
	struct manifest_cursor ask, take;
	struct manifest_writer *out;
};

static bool is_asked(const struct fetch *f, const struct tree_entry *e)
{
	struct tree_entry before;

	if (e->type == TREE_NONE)
		return !e->links;
	if (e->type != TREE_FILE)
		return false;
	fetch_put_before(f, e, &before);
	return before.type == TREE_FILE && before.size == e->size && (before.flags & TREE_HAS_HASH);
}

static bool next_asked(void *arg, const char **path)
{
	struct sure *s = arg;
	struct tree_entry e;

	while (manifest_next(&s->ask, &e)) {
		if (is_asked(s->f, &e)) {
			*path = e.path;
			return true;
		}
	}
	return false;
}

/* Copies what was not asked for, up to the entry that is answered. False at the end. */
static int copy_until(struct sure *s, const struct tree_entry *answer, struct error *err)
{
	struct tree_entry e;

	while (manifest_next(&s->take, &e)) {
		if (is_asked(s->f, &e)) {
			if (answer && e.path_len == answer->path_len &&
			    memcmp(e.path, answer->path, e.path_len) == 0)
				return 0;
			return error_set(err, ERR_PROTOCOL,
					 "the place answered about another file");
		}
		if (manifest_add(s->out, &e, err) < 0)
			return -1;
	}
	return answer ? error_set(err, ERR_PROTOCOL, "the place answered too often") : 0;
}

static int take_answer(void *arg, const struct tree_entry *answer, struct error *err)
{
	struct sure *s = arg;
	struct tree_entry before, now = *answer;

	if (copy_until(s, answer, err) < 0 || fetch_tick(s->f, err) < 0)
		return -1;
	fetch_put_before(s->f, answer, &before);
	if (now.type == TREE_FILE && now.mode == before.mode && fetch_same_bytes(&before, &now))
		return 0;
	if (now.type == TREE_NONE)
		now = (struct tree_entry){ .path = answer->path,
					   .path_len = answer->path_len,
					   .links = 1 };
	return manifest_add(s->out, &now, err);
}

static int hash_files(struct fetch *f, const char *from, const char *to, struct error *err)
{
	_cleanup_manifest_ struct manifest *in = NULL;
	struct sure s = { .f = f };

	if (manifest_open(f->run_fd, from, &in, err) < 0 ||
	    manifest_create(f->run_fd, to, &s.out, err) < 0)
		return -1;
	manifest_temporary(s.out);
	s.ask = s.take = (struct manifest_cursor){ .m = in };
	if (place_tree_hash(f->act->place, f->state->place_root, next_asked, take_answer, &s, err) <
		    0 ||
	    copy_until(&s, NULL, err) < 0) {
		manifest_abandon(s.out);
		return error_wrap(err, "compare files in the place");
	}
	return manifest_commit(s.out, err);
}

int fetch_make_sure(struct fetch *f, const struct look_found *found, const char **name,
		    struct error *err)
{
	*name = FETCH_SEEN;
	if (found->unsure_others) {
		if (settle_others(f, *name, FETCH_KNOWN, err) < 0)
			return -1;
		*name = FETCH_KNOWN;
	}
	if (found->unsure_files || found->same_size) {
		if (hash_files(f, *name, FETCH_SURE, err) < 0)
			return -1;
		*name = FETCH_SURE;
	}
	return 0;
}
