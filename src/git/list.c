/*
 * git_list. Small files are made up or read into memory and sorted; objects, which may be many, are
 * listed directory by directory where their turn comes. Refs are read before objects are listed:
 * whatever a ref names is then among them.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/sha256.h"
#include "base/text.h"
#include "git/about.h"
#include "git/cli.h"
#include "git/repo_config.h"

#define MAX_OBJECT_DIRS 32
#define MAX_STATE_ENTRIES 1000

struct small_file {
	char *path; /* beginning with ".git" */
	enum tree_type type;
	struct buf content;
};

struct listing {
	const struct git_repo *repo;
	bool sha256;
	git_file_fn *fn;
	void *arg;
	struct small_file *files;
	size_t count, cap;
	char **object_dirs; /* ours first, then alternates */
};

static void listing_clear(struct listing *l)
{
	for (size_t i = 0; i < l->count; i++) {
		free(l->files[i].path);
		buf_free(&l->files[i].content);
	}
	free(l->files);
	strv_free(l->object_dirs);
}

static struct small_file *add(struct listing *l, enum tree_type type, const char *dir,
			      const char *name)
{
	if (l->count == l->cap) {
		l->cap = l->cap ? l->cap * 2 : 64;
		l->files = xreallocarray(l->files, l->cap, sizeof(*l->files));
	}

	struct small_file *f = &l->files[l->count++];

	*f = (struct small_file){ .path = xasprintf("%s%s", dir, name), .type = type };
	return f;
}

static void move_buf(struct buf *to, struct buf *from)
{
	*to = *from;
	*from = (struct buf){ 0 };
}

static int add_file_of(struct listing *l, const char *dir, const char *name, size_t max,
		       struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	bool there;

	if (git_read_file(l->repo, dir, name, max, &text, &there, err) < 0)
		return -1;
	if (!there)
		return 0;

	move_buf(&add(l, TREE_FILE, ".git/", name)->content, &text);
	return 0;
}

/* State of a rebase or of a sequence of picks: one directory of small files. */
static int add_state_dir(struct listing *l, const char *name, struct error *err)
{
	_cleanup_free_ char *path = path_join(l->repo->git_dir, name);
	_cleanup_strv_ char **names = NULL;
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (git_names_in(l->repo, path, &names, &fd, err) < 0)
		return -1;
	if (fd < 0)
		return 0;
	if (strv_len(names) > MAX_STATE_ENTRIES)
		return error_set(err, ERR_UNPROCESSABLE, "%s has too many files", path);
	add(l, TREE_DIR, ".git/", name);
	for (char **n = names; n && *n; n++) {
		_cleanup_free_ char *inner = xasprintf("%s/%s", name, *n);

		if (fstatat(fd, *n, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
			continue;
		if (add_file_of(l, l->repo->git_dir, inner, GIT_STATE_MAX, err) < 0)
			return -1;
	}
	return 0;
}

static int add_state(struct listing *l, struct error *err)
{
	static const char *const dirs[] = { "rebase-apply", "rebase-merge", "sequencer" };
	static const char *const of_worktree[] = { "ORIG_HEAD",    "BISECT_EXPECTED_REV",
						   "BISECT_LOG",   "BISECT_NAMES",
						   "BISECT_START", "BISECT_TERMS",
						   "REBASE_HEAD",  "info/sparse-checkout" };
	static const char *const common[] = { "info/attributes", "info/exclude", "shallow" };

	for (const char *const *name = git_state_files; *name; name++) {
		if (add_file_of(l, l->repo->git_dir, *name, GIT_STATE_MAX, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(of_worktree); i++) {
		if (add_file_of(l, l->repo->git_dir, of_worktree[i], GIT_STATE_MAX, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(common); i++) {
		if (add_file_of(l, l->repo->common_dir, common[i], GIT_STATE_MAX * 16, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		if (add_state_dir(l, dirs[i], err) < 0)
			return -1;
	}
	return 0;
}

static bool is_shared_index(const char *name)
{
	return str_starts(name, "sharedindex.") &&
	       strspn(name + 12, "0123456789abcdef") == strlen(name + 12);
}

/* The half of a split index that our index names; the other ones are leftovers. */
static int add_shared_index(struct listing *l, const struct buf *index, struct error *err)
{
	_cleanup_strv_ char **names = NULL;
	_cleanup_close_ int fd = -1;

	if (!index->len || !memmem(index->data, index->len, "link", 4))
		return 0;
	if (git_names_in(l->repo, l->repo->git_dir, &names, &fd, err) < 0)
		return -1;
	for (char **n = names; n && *n; n++) {
		uint8_t raw[32];
		size_t hex = l->sha256 ? 64 : 40;

		if (!is_shared_index(*n) || strlen(*n + 12) != hex ||
		    !hex_decode(raw, *n + 12, hex / 2) ||
		    !memmem(index->data, index->len, raw, hex / 2))
			continue;
		if (add_file_of(l, l->repo->git_dir, *n, GIT_INDEX_MAX, err) < 0)
			return -1;
	}
	return 0;
}

static int compare_refs(const void *a, const void *b)
{
	return strcmp(((const struct git_ref *)a)->name, ((const struct git_ref *)b)->name);
}

/*
 * All refs in one packed-refs, symbolic ones as files of their own: whatever the place then changes
 * shows up as a new file. HEAD as it was when the refs were read.
 */
static int add_refs(struct listing *l, json_t *about, struct error *err)
{
	_cleanup_(git_refs_clear) struct git_refs refs = { 0 };
	const char *head_ref = json_str(about, "headRef"), *head = json_str(about, "head");
	struct buf packed = { 0 };

	if (git_host_refs(l->repo, l->sha256, &refs, err) < 0)
		return -1;
	if (refs.count)
		qsort(refs.items, refs.count, sizeof(*refs.items), compare_refs);
	buf_puts(&packed, "# pack-refs with: sorted \n");
	for (size_t i = 0; i < refs.count; i++) {
		const struct git_ref *ref = &refs.items[i];

		if (ref->target) {
			struct small_file *f = add(l, TREE_FILE, ".git/", ref->name);

			buf_printf(&f->content, "ref: %s\n", ref->target);
			continue;
		}
		buf_printf(&packed, "%s %s\n", ref->oid, ref->name);
		if (head_ref && streq(ref->name, head_ref))
			head = ref->oid;
	}
	add(l, TREE_FILE, ".git/", "packed-refs")->content = packed;

	struct small_file *f = add(l, TREE_FILE, ".git/", "HEAD");

	if (head_ref)
		buf_printf(&f->content, "ref: %s\n", head_ref);
	else
		buf_printf(&f->content, "%s\n", head ? head : "");
	if (head_ref && head)
		json_put_str(about, "head", head);
	return 0;
}

static int add_small(struct listing *l, const struct git_settings *settings, json_t *about,
		     struct error *err)
{
	_cleanup_buf_ struct buf index = { 0 };

	if (git_about_fill(l->repo, about, &index, err) < 0 || add_shared_index(l, &index, err) < 0)
		return -1;
	if (json_str(about, "index"))
		move_buf(&add(l, TREE_FILE, ".git/", "index")->content, &index);
	buf_append(&add(l, TREE_FILE, ".git/", "config")->content, settings->for_place.data,
		   settings->for_place.len);
	add(l, TREE_DIR, ".git/", "objects"); /* what is in it comes when it is its turn */
	add(l, TREE_DIR, ".git/", "refs/heads");
	add(l, TREE_DIR, ".git/", "refs/tags");
	return add_refs(l, about, err) < 0 ? -1 : add_state(l, err);
}

static int compare_files(const void *a, const void *b)
{
	const struct small_file *x = a, *y = b;

	return tree_path_compare(x->path, strlen(x->path), y->path, strlen(y->path));
}

/* Directories on the way to the files, some of them several times; then everything in order. */
static void add_parents_and_sort(struct listing *l)
{
	size_t count = l->count;

	for (size_t i = 0; i < count; i++) {
		for (size_t n = 0; l->files[i].path[n]; n++) {
			if (l->files[i].path[n] != '/')
				continue;

			_cleanup_free_ char *dir = xstrndup(l->files[i].path, n);

			add(l, TREE_DIR, "", dir);
		}
	}
	qsort(l->files, l->count, sizeof(*l->files), compare_files);
}

static int add_object_dir(struct listing *l, const char *path, int depth, struct error *err);

/* One line of objects/info/alternates, seen from the directory it was found in. */
static int add_alternate(struct listing *l, const char *dir, const char *line, int depth,
			 struct error *err)
{
	_cleanup_free_ char *path = path_join(dir, line), *real = NULL;

	if (line[0] == '"')
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s/info/alternates has a quoted path, which is not supported",
				 dir);
	{
		_cleanup_(owner_leave) struct owner_rights as = { 0 };

		if (owner_enter(l->repo, &as, err) < 0)
			return -1;
		real = realpath(path, NULL);
	}
	if (!real) {
		error_errno(err, errno, "objects are borrowed from %s", path);
		return error_recode(err, ERR_UNPROCESSABLE);
	}
	return add_object_dir(l, real, depth + 1, err);
}

static int add_object_dir(struct listing *l, const char *path, int depth, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	char *rest = NULL;
	bool there;

	for (char **dir = l->object_dirs; dir && *dir; dir++) {
		if (streq(*dir, path))
			return 0;
	}
	if (strv_len(l->object_dirs) >= MAX_OBJECT_DIRS || depth > 5)
		return error_set(err, ERR_UNPROCESSABLE,
				 "%s borrows objects from too many repositories", l->repo->path);
	strv_push(&l->object_dirs, xstrdup(path));
	if (git_read_file(l->repo, path, "info/alternates", 1 << 20, &text, &there, err) < 0)
		return -1;
	for (char *line = there ? strtok_r(text.data, "\n", &rest) : NULL; line;
	     line = strtok_r(NULL, "\n", &rest)) {
		if (line[0] != '#' && add_alternate(l, path, line, depth, err) < 0)
			return -1;
	}
	return 0;
}

static int emit_dir(struct listing *l, const char *path, struct error *err)
{
	struct git_file file = {
		.entry = {
			.path = path,
			.path_len = (uint32_t)strlen(path),
			.type = TREE_DIR,
			.mode = 0755,
		},
	};

	return l->fn(l->arg, &file, err);
}

static int emit_small(struct listing *l, const struct small_file *f, struct error *err)
{
	struct git_file file = {
		.entry = {
			.path = f->path,
			.path_len = (uint32_t)strlen(f->path),
			.type = TREE_FILE,
			.flags = TREE_HAS_HASH,
			.mode = 0644,
			.size = f->content.len,
			.links = 1,
		},
		.content = buf_str(&f->content),
	};

	sha256_once(file.content, f->content.len, file.entry.sha256);
	return l->fn(l->arg, &file, err);
}

struct object_name {
	char *name; /* in its directory */
	size_t dir; /* of object_dirs */
	uint64_t size;
};
struct object_names {
	struct object_name *items;
	size_t count, cap;
};

static void object_names_clear(struct object_names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->items[i].name);
	free(names->items);
}

/* The same object of an earlier directory comes first and is the one that is taken. */
static int compare_objects(const void *a, const void *b)
{
	const struct object_name *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order ? order : (x->dir > y->dir) - (x->dir < y->dir);
}

static bool is_hex(const char *text, size_t len)
{
	return strspn(text, "0123456789abcdef") >= len;
}

static bool is_unfenced(const struct listing *l, const char *name)
{
	size_t len = l->sha256 ? 62 : 38;

	return strlen(name) == len && is_hex(name, len);
}

/* pack-<hex>.pack and its index. Bitmaps, reverse indexes and the like are made anew at need. */
static bool is_pack(const char *name)
{
	size_t len = strlen(name);
	size_t tail = str_ends(name, ".pack") ? 5 : str_ends(name, ".idx") ? 4 : 0;

	return str_starts(name, "pack-") && tail && len > 5 + tail &&
	       is_hex(name + 5, len - 5 - tail);
}

static int take_objects(struct listing *l, size_t dir, const char *sub, bool packs,
			struct object_names *out, struct error *err)
{
	_cleanup_free_ char *path = path_join(l->object_dirs[dir], sub);
	_cleanup_strv_ char **names = NULL;
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (git_names_in(l->repo, path, &names, &fd, err) < 0)
		return -1;
	for (char **n = names; n && *n; n++) {
		if (packs && str_ends(*n, ".promisor"))
			return error_set(err, ERR_UNPROCESSABLE,
					 "%s is of a partial clone: stage a full clone", path);
		if (!(packs ? is_pack(*n) : is_unfenced(l, *n)) ||
		    fstatat(fd, *n, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
			continue;
		if (out->count == out->cap) {
			out->cap = out->cap ? out->cap * 2 : 64;
			out->items = xreallocarray(out->items, out->cap, sizeof(*out->items));
		}
		out->items[out->count++] = (struct object_name){ .name = steal(*n),
								 .dir = dir,
								 .size = (uint64_t)st.st_size };
	}
	return 0;
}

static int emit_object(struct listing *l, const char *sub, const struct object_name *o,
		       struct error *err)
{
	_cleanup_free_ char *path = xasprintf(".git/objects/%s/%s", sub, o->name);
	_cleanup_free_ char *source = xasprintf("%s/%s/%s", l->object_dirs[o->dir], sub, o->name);
	struct git_file file = {
		.entry = {
			.path = path,
			.path_len = (uint32_t)strlen(path),
			.type = TREE_FILE,
			.mode = 0444,
			.size = o->size,
			.links = 1,
		},
		.source = source,
		.immutable = true,
	};

	return l->fn(l->arg, &file, err);
}

static int emit_objects_of(struct listing *l, const char *sub, bool packs, struct error *err)
{
	_cleanup_(object_names_clear) struct object_names names = { 0 };
	_cleanup_free_ char *path = xasprintf(".git/objects/%s", sub);

	if (latch_is_set(l->repo->cancel_fd))
		return error_set(err, ERR_CANCELLED, "cancelled while objects were listed");
	for (size_t dir = 0; l->object_dirs[dir]; dir++) {
		if (take_objects(l, dir, sub, packs, &names, err) < 0)
			return -1;
	}
	if (!names.count && !packs)
		return 0;
	if (names.count)
		qsort(names.items, names.count, sizeof(*names.items), compare_objects);
	if (emit_dir(l, path, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		if (i && streq(names.items[i].name, names.items[i - 1].name))
			continue;
		if (emit_object(l, sub, &names.items[i], err) < 0)
			return -1;
	}
	return 0;
}

static int emit_objects(struct listing *l, struct error *err)
{
	char sub[3];

	for (unsigned i = 0; i < 256; i++) {
		uint8_t byte = (uint8_t)i;

		hex_encode(sub, &byte, 1);
		if (emit_objects_of(l, sub, false, err) < 0)
			return -1;
	}
	if (emit_dir(l, ".git/objects/info", err) < 0)
		return -1;
	return emit_objects_of(l, "pack", true, err);
}

static int emit_all(struct listing *l, struct error *err)
{
	const char *last = "";

	for (size_t i = 0; i < l->count; i++) {
		const struct small_file *f = &l->files[i];

		if (streq(f->path, last))
			continue;
		last = f->path;

		int rc = f->type == TREE_DIR ? emit_dir(l, f->path, err) : emit_small(l, f, err);

		if (rc == 0 && streq(f->path, ".git/objects"))
			rc = emit_objects(l, err);
		if (rc < 0)
			return -1;
	}
	return 0;
}

int git_list(int root_fd, const char *path, int cancel_fd, struct git_seen *seen, json_t *about,
	     git_file_fn *fn, void *arg, struct error *err)
{
	_cleanup_repo_ struct git_repo repo = { 0 };
	_cleanup_(git_settings_clear) struct git_settings settings = { 0 };
	_cleanup_free_ char *objects = NULL;

	if (git_repo_find(root_fd, path, cancel_fd, &repo, err) < 0)
		return -1;
	if (repo.kind == GIT_NONE)
		return error_set(err, ERR_CONFLICT, "%s was a git repository and is none now",
				 path);
	repo.seen = seen;
	if (git_settings_read(&repo, &settings, err) < 0)
		return -1;

	_cleanup_(listing_clear) struct listing l = {
		.repo = &repo, .sha256 = settings.sha256, .fn = fn, .arg = arg
	};

	if (add_small(&l, &settings, about, err) < 0)
		return -1;
	add_parents_and_sort(&l);
	objects = path_join(repo.common_dir, "objects");
	if (add_object_dir(&l, objects, 0, err) < 0)
		return -1;
	return emit_all(&l, err);
}
