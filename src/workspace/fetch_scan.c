#include <fcntl.h>
#include <string.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "git/git.h"
#include "git/hidden.h"
#include "workspace/collect_internal.h"

#define TICK_EVERY 4096

/* A path and everything below it. */
struct subtree {
	char path[TREE_PATH_MAX + 1];
	size_t len; /* 0: none */
};

struct look {
	struct fetch *f;
	struct look_found *found;
	struct manifest_cursor cursor; /* of what was put there */
	struct tree_entry next;
	bool more;
	struct manifest_writer *out;
	struct subtree gone;   /* was a directory and is none now */
	struct subtree hidden; /* cannot be seen, or is not looked at */
	struct subtree inside; /* a repository's .git that was told of */
	struct subtree named;  /* stays in the place for its name */
	bool git;
	uint64_t seen;
};

static void subtree_set(struct subtree *s, const char *path, size_t len)
{
	memcpy(s->path, path, len);
	s->path[len] = '\0';
	s->len = len;
}

static bool subtree_has(const struct subtree *s, const struct tree_entry *e)
{
	return s->len && tree_path_is_within(e->path, e->path_len, s->path, s->len);
}

static bool is_git(const struct tree_entry *e)
{
	return tree_path_is_within(e->path, e->path_len, ".git", 4);
}

/* The next entry that was put there and is of interest to this look. */
static void advance(struct look *l)
{
	do {
		l->more = manifest_next(&l->cursor, &l->next);
	} while (l->more && (is_git(&l->next) != l->git ||
			     (l->git && (l->next.type != TREE_FILE ||
					 !git_path_comes_back(l->next.path, l->next.path_len)))));
}

/* Once for each, and only if something was done in it; looking (git status) renews the index. */
static void tell_inside(struct look *l, const struct tree_entry *e, size_t len)
{
	if (streq(e->path + len, "/index") || e->flags & TREE_UNREADABLE)
		return;
	if (l->inside.len == len && memcmp(l->inside.path, e->path, len) == 0)
		return;
	subtree_set(&l->inside, e->path, len);
	fetch_refuse(l->f, l->inside.path, GIT_INSIDE_REASON);
}

static int note_missing(struct look *l, struct error *err)
{
	struct tree_entry none = { .path = l->next.path, .path_len = l->next.path_len };
	bool certain = l->git || subtree_has(&l->gone, &l->next);
	size_t inside = l->git ? 0 : git_inside(l->next.path, l->next.path_len);

	if (subtree_has(&l->hidden, &l->next))
		return 0;
	if (inside) {
		tell_inside(l, &l->next, inside);
		return 0;
	}
	none.links = certain;
	if (!certain && l->next.type == TREE_FILE)
		l->found->unsure_files++;
	else if (!certain)
		l->found->unsure_others++;
	l->found->entries++;
	return manifest_add(l->out, &none, err);
}

/* Everything that was put there and comes before `until` (NULL: all of the rest). */
static int pass_missing(struct look *l, const struct tree_entry *until, struct error *err)
{
	while (l->more && (!until || tree_path_compare(l->next.path, l->next.path_len, until->path,
						       until->path_len) < 0)) {
		if (note_missing(l, err) < 0)
			return -1;
		advance(l);
	}
	return 0;
}

static bool is_unchanged(const struct tree_entry *before, const struct tree_entry *now)
{
	if (before->type != now->type)
		return false;
	if (now->type == TREE_FILE)
		return tree_entry_same_state(before, now);
	return now->type == TREE_DIR || tree_entry_same_content(before, now);
}

/* What cannot come home; what was below it is not taken for deleted either. */
static bool is_refused(struct look *l, const struct tree_entry *e)
{
	if (subtree_has(&l->hidden, e))
		return true;
	if (e->type != TREE_SPECIAL && !(e->flags & TREE_UNREADABLE))
		return false;
	subtree_set(&l->hidden, e->path, e->path_len);
	fetch_refuse(l->f, e->path,
		     e->type == TREE_SPECIAL ? "a socket, a fifo or a device"
					     : "it cannot be read in the place");
	return true;
}

/* Made in the place under a name that is hidden from it: as what rules hide, but told. */
static bool stays(struct look *l, const struct tree_entry *before, const struct tree_entry *e)
{
	if (before->type != TREE_NONE)
		return false;
	if (subtree_has(&l->named, e))
		return true;
	if (!hidden_stays(l->f->state->show, e->path, e->path_len, e->type == TREE_DIR))
		return false;
	subtree_set(&l->named, e->path, e->path_len);
	fetch_refuse(l->f, e->path, HIDDEN_STAYS);
	return true;
}

static int look_at(void *arg, const struct tree_entry *e, struct error *err)
{
	size_t inside = git_inside(e->path, e->path_len);
	struct look *l = arg;
	struct tree_entry before = { 0 };

	if (++l->seen % TICK_EVERY == 0 && fetch_tick(l->f, err) < 0)
		return -1;
	if (pass_missing(l, e, err) < 0)
		return -1;
	if (l->more && l->next.path_len == e->path_len &&
	    memcmp(l->next.path, e->path, e->path_len) == 0) {
		before = l->next;
		advance(l);
	}
	if (inside && !is_unchanged(&before, e))
		tell_inside(l, e, inside);
	if (inside || stays(l, &before, e) || is_refused(l, e))
		return 0;
	if (before.type == TREE_DIR && e->type != TREE_DIR)
		subtree_set(&l->gone, e->path, e->path_len);
	if (is_unchanged(&before, e))
		return 0;
	l->found->entries++;
	if (e->type == TREE_FILE && before.type == TREE_FILE && before.size == e->size)
		l->found->same_size++;
	return manifest_add(l->out, e, err);
}

static void look_free(struct look *l)
{
	manifest_abandon(l->out);
}

static int finish(struct look *l, struct error *err)
{
	if (pass_missing(l, NULL, err) < 0)
		return -1;

	struct manifest_writer *out = steal(l->out);

	return manifest_commit(out, err);
}

/* What sorts behind the last entry that was seen was not looked at; it may well be there. */
static void note_cut(struct look *l)
{
	_cleanup_free_ char *reason =
		xasprintf("there are more than %llu files in the place: new files after this point "
			  "stay there (berth serve --max-collect-files)",
			  (unsigned long long)l->f->max_entries);

	l->gone.len = 0;
	fetch_refuse(l->f, l->more ? l->next.path : "(the end)", reason);
}

int fetch_look(struct fetch *f, struct look_found *found, struct error *err)
{
	_cleanup_(look_free) struct look l = { .f = f, .found = found };
	_cleanup_buf_ struct buf rules = { 0 };
	_cleanup_close_ int root = -1;
	_cleanup_error_ struct error why = { 0 };
	struct place_scan scan = { .root = f->state->place_root,
				   .skip_git = true,
				   .max_entries = f->max_entries };

	*found = (struct look_found){ 0 };
	if (dir_open(AT_FDCWD, f->state->worktree ? f->state->worktree : f->state->path, &root,
		     err) < 0 ||
	    hidden_rules(root, &rules, err) < 0)
		return -1;
	scan.rules = buf_str(&rules);
	scan.rules_len = rules.len;
	if (manifest_create(f->run_fd, FETCH_SEEN, &l.out, err) < 0)
		return -1;
	manifest_temporary(l.out);
	l.cursor.m = f->place;
	advance(&l);
	if (place_tree_scan(f->act->place, &scan, look_at, &l, &why) < 0) {
		if (why.code != ERR_TOO_LARGE) {
			error_move(err, &why);
			return error_wrap(err, "look at the workspace in the place");
		}
		note_cut(&l);
	}
	return finish(&l, err);
}

struct look_git {
	struct look *look;
	struct buf path;
};

/* Objects never change under their name; whatever a place wrote there, ours are here. */
static bool is_staged_object(const struct tree_entry *before, const struct tree_entry *e)
{
	return before->type == TREE_FILE && before->size == e->size &&
	       str_starts(e->path, ".git/objects/");
}

static int look_at_git(void *arg, const struct tree_entry *e, struct error *err)
{
	struct look_git *g = arg;
	struct look *l = g->look;
	struct tree_entry here = *e, before;

	if (++l->seen % TICK_EVERY == 0 && fetch_tick(l->f, err) < 0)
		return -1;
	buf_reset(&g->path);
	buf_puts(&g->path, ".git/");
	buf_append(&g->path, e->path, e->path_len);
	if (g->path.len > TREE_PATH_MAX)
		return 0;
	here.path = g->path.data;
	here.path_len = (uint32_t)g->path.len;
	if (here.type == TREE_DIR && (here.flags & TREE_UNREADABLE))
		subtree_set(&l->hidden, here.path, here.path_len);
	if (here.type != TREE_FILE || !git_path_comes_back(here.path, here.path_len))
		return 0;
	if (pass_missing(l, &here, err) < 0)
		return -1;
	memset(&before, 0, sizeof(before));
	if (l->more && l->next.path_len == here.path_len &&
	    memcmp(l->next.path, here.path, here.path_len) == 0) {
		before = l->next;
		advance(l);
	}
	if (is_unchanged(&before, &here) || is_staged_object(&before, &here))
		return 0;
	if (here.flags & TREE_UNREADABLE) {
		fetch_refuse(l->f, here.path, "it cannot be read in the place");
		return 0;
	}
	l->found->entries++;
	return manifest_add(l->out, &here, err);
}

int fetch_look_git(struct fetch *f, uint64_t *entries, struct error *err)
{
	struct look_found found = { 0 };
	_cleanup_(look_free) struct look l = { .f = f, .found = &found, .git = true };
	_cleanup_free_ char *root = path_join(f->state->place_root, ".git");
	struct look_git g = { .look = &l };
	_cleanup_error_ struct error why = { 0 };
	const struct place_scan scan = { .root = root,
					 .no_rules = true,
					 .max_entries = f->max_entries };
	int r;

	if (manifest_create(f->run_fd, FETCH_GIT, &l.out, err) < 0)
		return -1;
	manifest_temporary(l.out);
	l.cursor.m = f->place;
	advance(&l);
	r = place_tree_scan(f->act->place, &scan, look_at_git, &g, &why);
	buf_free(&g.path);
	/* No repository there any more, one too large, or locked: what was seen of it is what
	 * comes, and the files do not wait for the rest. */
	if (r < 0 && why.code != ERR_NOT_FOUND && why.code != ERR_TOO_LARGE &&
	    why.code != ERR_FORBIDDEN) {
		error_move(err, &why);
		return error_wrap(err, "look at the repository in the place");
	}
	if (r < 0)
		fetch_refuse(f, ".git", why.message);
	if (r < 0 && why.code != ERR_NOT_FOUND)
		l.more = false;
	if (finish(&l, err) < 0)
		return -1;
	*entries = found.entries;
	return 0;
}

static int look_no_further(void *arg, const struct tree_entry *e, struct error *err)
{
	(void)arg;
	(void)e;
	(void)err;
	return 0;
}

int fetch_look_made(struct fetch *f, struct error *err)
{
	_cleanup_free_ char *root = path_join(f->state->place_root, ".git");
	const struct place_scan scan = { .root = root, .no_rules = true, .max_entries = 1 };
	_cleanup_error_ struct error why = { 0 };

	if (place_tree_scan(f->act->place, &scan, look_no_further, NULL, &why) == 0 ||
	    why.code == ERR_TOO_LARGE || why.code == ERR_FORBIDDEN) {
		fetch_refuse(f, ".git", GIT_MADE_REASON);
		return 0;
	}
	if (why.code == ERR_NOT_FOUND)
		return 0;
	error_move(err, &why);
	return error_wrap(err, "look for a repository in the place");
}
