#include "git/guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/path.h"
#include "base/text.h"
#include "filetree/ignore.h"
#include "git/cli.h"
#include "git/hidden.h"
#include "git/known_names.h"

#define CHANGES_MAX ((size_t)64 << 20)
#define NAMES_MAX ((size_t)4 << 20)
/* Each costs one or two gits; a run that changes more of them is not merged by itself. */
#define READ_MAX 512

static const char EMPTY_SHA1[] = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
static const char EMPTY_SHA256[] =
	"6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321";

struct guard {
	const struct git_quarantine *q;
	enum git_care care;
	const char *tree;                /* what is judged: a commit, or */
	const struct index_entries *now; /* an index */
	struct index_entries tracked;    /* the host's, once it is asked for */
	bool has_tracked;
	const struct index_entries *old; /* the same, borrowed; NULL: `tracked` */
	int read;                        /* gits that were asked for contents */
};

/* One path that differs. An oid of NULL: it is not there, or is no file. */
struct moved {
	const char *path;
	const char *old_oid, *new_oid;
	enum tree_type type; /* TREE_NONE: it goes */
};

static bool spend(struct guard *g)
{
	return g->read++ < READ_MAX;
}

static int read_blob(struct guard *g, const char *oid, struct buf *text, bool *whole,
		     struct error *err)
{
	struct git_call call = { .repo = g->q->repo,
				 .args = GIT_ARGS("cat-file", "blob", oid),
				 .max_output = IGNORE_TEXT_MAX };
	_cleanup_error_ struct error why = { 0 };

	*whole = true;
	if (!oid)
		return 0;
	*whole = spend(g) && git_run(&call, text, NULL, &why) == 0;
	if (*whole || why.code == ERR_NONE || why.code == ERR_TOO_LARGE ||
	    why.code == ERR_UNPROCESSABLE)
		return 0;
	error_move(err, &why);
	return -1;
}

static int shows_more(struct guard *g, const struct moved *m, bool *more, struct error *err)
{
	_cleanup_buf_ struct buf old = { 0 }, now = { 0 };
	bool old_whole, now_whole;

	if (read_blob(g, m->old_oid, &old, &old_whole, err) < 0 ||
	    read_blob(g, m->new_oid, &now, &now_whole, err) < 0)
		return -1;
	*more = !old_whole || !now_whole ||
		ignore_shows_more(buf_str(&old), old.len, buf_str(&now), now.len);
	return 0;
}

/* ---- what was tracked ---- */

static int by_path(const void *key, const void *item)
{
	return strcmp(key, ((const struct index_entry *)item)->path);
}

static int was_tracked(struct guard *g, const char *path, bool *yes, struct error *err)
{
	const struct index_entries *old = g->old ? g->old : &g->tracked;

	if (!g->old && !g->has_tracked) {
		_cleanup_free_ char *file = path_join(g->q->repo->git_dir, "index");
		struct stat st;

		if (lstat(file, &st) == 0 && index_entries_host(g->q, &g->tracked, err) < 0)
			return -1;
		g->has_tracked = true;
	}
	*yes = old->count &&
	       bsearch(path, old->items, old->count, sizeof(*old->items), by_path) != NULL;
	return 0;
}

static int unhides(struct guard *g, const struct moved *m, bool *yes, struct error *err)
{
	int hidden;
	bool tracked = false;

	*yes = false;
	if (m->type == TREE_NONE || m->old_oid)
		return 0;
	hidden = hidden_now(g->q->repo->root_fd, m->path, err);
	if (hidden <= 0)
		return hidden;
	if (was_tracked(g, m->path, &tracked, err) < 0)
		return -1;
	*yes = !tracked;
	return 0;
}

/* ---- what runs by itself ---- */

/* Names directly in the directory, each with a NUL. */
static int names_in_tree(struct guard *g, const char *dir, size_t len, struct buf *names,
			 struct error *err)
{
	_cleanup_free_ char *object = xasprintf("%s:%.*s", g->tree, (int)len, dir);
	struct git_call call = { .repo = g->q->repo,
				 .args = GIT_ARGS("ls-tree", "-z", "--name-only", object),
				 .max_output = NAMES_MAX };

	return git_run(&call, names, NULL, err);
}

static void names_in_index(const struct guard *g, const char *dir, size_t len, struct buf *names)
{
	for (size_t i = 0; i < g->now->count; i++) {
		const char *path = g->now->items[i].path;

		if (len && (strncmp(path, dir, len) != 0 || path[len] != '/'))
			continue;
		path += len ? len + 1 : 0;
		buf_append(names, path, strcspn(path, "/"));
		buf_putc(names, '\0');
	}
}

static int is_repository(struct guard *g, const char *dir, size_t len, bool *yes, struct error *err)
{
	_cleanup_buf_ struct buf names = { 0 };
	bool head = false, objects = false, refs = false, common = false;

	*yes = !spend(g);
	if (*yes)
		return 0;
	if (g->now)
		names_in_index(g, dir, len, &names);
	else if (names_in_tree(g, dir, len, &names, err) < 0)
		return -1;
	for (size_t at = 0; at < names.len; at += strlen(names.data + at) + 1) {
		head |= streq(names.data + at, "HEAD");
		objects |= streq(names.data + at, "objects");
		refs |= streq(names.data + at, "refs");
		common |= streq(names.data + at, "commondir");
	}
	*yes = (head && (objects || refs || common)) || (objects && refs);
	return 0;
}

static int runs(struct guard *g, const struct moved *m, const char **by, struct error *err)
{
	size_t len = strlen(m->path), dirs[NAMES_PARTS_MAX], count;
	bool yes = false;

	*by = m->type == TREE_NONE ? NULL : names_run(m->path, len, m->type);
	if (*by || m->type == TREE_NONE)
		return 0;
	count = names_part_of_repository(m->path, len, dirs);
	for (size_t i = 0; i < count && !yes; i++)
		if (is_repository(g, m->path, dirs[i], &yes, err) < 0)
			return -1;
	if (yes)
		*by = NAMES_RUN_BY_GIT;
	return 0;
}

/* ---- one path, and all of them ---- */

static int judge(struct guard *g, const struct moved *m, char **why, struct error *err)
{
	bool yes = false;
	const char *by = NULL;

	if (ignore_is_rule_file(m->path, strlen(m->path)) && shows_more(g, m, &yes, err) < 0)
		return -1;
	if (yes) {
		*why = xasprintf("\"%.200s\" would show later runs files that are hidden now",
				 m->path);
		return 0;
	}
	if (unhides(g, m, &yes, err) < 0)
		return -1;
	if (yes) {
		*why = xasprintf("\"%.200s\" is hidden from runs and would be tracked", m->path);
		return 0;
	}
	if (g->care == GIT_CARE_ALL && runs(g, m, &by, err) < 0)
		return -1;
	if (by)
		*why = xasprintf("\"%.200s\" is run by %s", m->path, by);
	return 0;
}

static enum tree_type type_of(unsigned mode)
{
	switch (mode & 0170000) {
	case 0:
		return TREE_NONE;
	case 0120000:
		return TREE_SYMLINK;
	case 0160000:
		return TREE_DIR;
	default:
		return TREE_FILE;
	}
}

/* ":<mode> <mode> <oid> <oid> <letter>" NUL path NUL, of diff-tree --raw -z. */
static int judge_raw(struct guard *g, const char *text, size_t len, char **why, struct error *err)
{
	size_t hex = g->q->sha256 ? 64 : 40;

	for (const char *at = text, *end = text + len; at < end && !*why;) {
		const char *path = at + strlen(at) + 1;
		char old_oid[GIT_OID_MAX], new_oid[GIT_OID_MAX];
		unsigned old_mode, new_mode;

		if (path >= end ||
		    sscanf(at, ":%o %o %64[0-9a-f] %64[0-9a-f]", &old_mode, &new_mode, old_oid,
			   new_oid) != 4 ||
		    strlen(old_oid) != hex || strlen(new_oid) != hex)
			return error_set(err, ERR_INTERNAL, "git lists changes in an unknown form");

		const struct moved m = {
			.path = path,
			.old_oid = type_of(old_mode) == TREE_FILE ? old_oid : NULL,
			.new_oid = type_of(new_mode) == TREE_FILE ? new_oid : NULL,
			.type = type_of(new_mode),
		};

		if (judge(g, &m, why, err) < 0)
			return -1;
		at = path + strlen(path) + 1;
	}
	return 0;
}

int git_guard_commits(const struct git_quarantine *q, enum git_care care, const char *from,
		      const char *to, char **why, struct error *err)
{
	struct guard g = { .q = q, .care = care, .tree = to };
	const char *base = from ? from : q->sha256 ? EMPTY_SHA256 : EMPTY_SHA1;
	_cleanup_error_ struct error bad = { 0 };
	_cleanup_buf_ struct buf text = { 0 };
	struct git_call call = {
		.repo = q->repo,
		.args = GIT_ARGS("diff-tree", "-r", "-z", "--raw", "--no-renames", base, to),
		.max_output = CHANGES_MAX,
	};
	int rc;

	*why = NULL;
	if (care == GIT_CARE_NONE)
		return 0;
	if (git_run(&call, &text, NULL, &bad) < 0) {
		if (bad.code != ERR_TOO_LARGE) {
			error_move(err, &bad);
			return -1;
		}
		*why = xstrdup("they change more files than can be checked");
		return 0;
	}
	rc = judge_raw(&g, buf_str(&text), text.len, why, err);
	index_entries_clear(&g.tracked);
	return rc;
}

static bool is_same(const struct index_entry *a, const struct index_entry *b)
{
	return a->mode == b->mode && a->stage == b->stage && streq(a->oid, b->oid);
}

int git_guard_index(const struct git_quarantine *q, enum git_care care,
		    const struct index_entries *old, const struct index_entries *now, char **why,
		    struct error *err)
{
	struct guard g = { .q = q, .care = care, .now = now, .old = old };
	size_t i = 0, k = 0;

	*why = NULL;
	while (care != GIT_CARE_NONE && !*why && (i < old->count || k < now->count)) {
		const struct index_entry *a = i < old->count ? &old->items[i] : NULL;
		const struct index_entry *b = k < now->count ? &now->items[k] : NULL;
		int order = !a ? 1 : !b ? -1 : strcmp(a->path, b->path);

		a = order <= 0 ? a : NULL;
		b = order >= 0 ? b : NULL;
		i += a != NULL;
		k += b != NULL;
		if (a && b && is_same(a, b))
			continue;

		const struct moved m = {
			.path = a ? a->path : b->path,
			.old_oid = a && type_of(a->mode) == TREE_FILE ? a->oid : NULL,
			.new_oid = b && type_of(b->mode) == TREE_FILE ? b->oid : NULL,
			.type = b ? type_of(b->mode) : TREE_NONE,
		};

		if (judge(&g, &m, why, err) < 0)
			return -1;
	}
	return 0;
}
