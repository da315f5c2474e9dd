#include "git/place_repo.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "filetree/walk.h"
#include "git/cli.h"

#define MAX_DEPTH 64

struct reading {
	const struct git_quarantine *q;
	struct git_place *place;
	struct git_refs gone; /* loose refs that were staged and are not there any more */
	bool objects;
	char **why;
};

void git_place_clear(struct git_place *place)
{
	git_refs_clear(&place->refs);
	index_entries_clear(&place->index);
}

static bool is_hex(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (!strchr("0123456789abcdef", text[i]) || !text[i])
			return false;
	}
	return len > 0;
}

/* objects/xx/<rest> or objects/pack/pack-<hex>.pack; `path` begins behind "objects/". */
static bool is_object_path(const char *path, size_t len)
{
	if ((len == 41 || len == 65) && path[2] == '/')
		return is_hex(path, 2) && is_hex(path + 3, len - 3);
	return len > 15 && len < 100 && memcmp(path, "pack/pack-", 10) == 0 &&
	       memcmp(path + len - 5, ".pack", 5) == 0 && is_hex(path + 10, len - 15);
}

static bool is_one_of(const char *name, size_t len, const char *const *names)
{
	for (; *names; names++) {
		if (strlen(*names) == len && memcmp(*names, name, len) == 0)
			return true;
	}
	return false;
}

bool git_path_comes_back(const char *path, size_t len)
{
	static const char *const single[] = { "HEAD", "index", "packed-refs", NULL };

	if (len < 4 || memcmp(path, ".git", 4) != 0)
		return false;
	if (len == 4)
		return true; /* as a file or link it says that the repository is gone */
	if (path[4] != '/' || len == 5)
		return false;
	path += 5;
	len -= 5;
	if (is_one_of(path, len, single) || is_one_of(path, len, git_state_files))
		return true;
	if (len > 12 && memcmp(path, "sharedindex.", 12) == 0)
		return len <= 12 + 64 && is_hex(path + 12, len - 12);
	if (len > 8 && memcmp(path, "objects/", 8) == 0)
		return is_object_path(path + 8, len - 8);
	return git_ref_is_valid(path, len);
}

static int refuse(struct reading *r, char *why)
{
	if (!*r->why)
		*r->why = why;
	else
		free(why);
	return 0;
}

static int open_entry(int dir_fd, const char *name)
{
	struct stat st;
	int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
		close_fdp(&fd);
	return fd;
}

static int take_object(struct reading *r, const struct tree_entry *entry, int dir_fd,
		       const char *name, struct error *err)
{
	_cleanup_free_ char *to = path_join(r->q->place, entry->path);
	_cleanup_close_ int fd = -1;

	if (!r->objects || !is_object_path(entry->path + 8, entry->path_len - 8) || !entry->size)
		return 0;
	if (++r->place->objects > GIT_PLACE_MAX_OBJECTS)
		return refuse(r,
			      xasprintf("it has more than %d new objects", GIT_PLACE_MAX_OBJECTS));
	fd = open_entry(dir_fd, name);
	return fd < 0 ? 0 : git_quarantine_copy(r->q, fd, to, err);
}

static int take_ref(struct reading *r, const struct tree_entry *entry, int dir_fd, const char *name,
		    struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_close_ int fd = -1;
	char oid[GIT_OID_MAX], target[GIT_REF_MAX + 1];

	if (!git_ref_is_valid(entry->path, entry->path_len))
		return refuse(r, xstrdup("it has a ref with a name that git does not allow"));
	if (entry->size > GIT_REF_FILE_MAX)
		return refuse(r, xstrdup("it has a ref that is too long"));
	fd = open_entry(dir_fd, name);
	if (fd < 0)
		return 0;
	if (fd_read_all(fd, &text, GIT_REF_FILE_MAX, err) < 0)
		return -1;
	if (text.len && !git_ref_parse(text.data, text.len, r->q->sha256, oid, target))
		return refuse(r, xasprintf("its ref %.200s is not what git writes", entry->path));

	struct git_ref *ref =
		git_refs_add(text.len ? &r->place->refs : &r->gone, entry->path, entry->path_len);

	if (!ref)
		return refuse(r, xasprintf("it has more than %d refs", GIT_REFS_MAX));
	if (text.len)
		memcpy(ref->oid, oid, sizeof(oid));
	if (text.len && target[0])
		ref->target = xstrdup(target);
	return 0;
}

static int take_entry(void *arg, const struct tree_entry *entry, int dir_fd, const char *name,
		      struct error *err)
{
	struct reading *r = arg;

	if (*r->why || entry->type == TREE_DIR)
		return 0;
	if (entry->type != TREE_FILE)
		return refuse(r, xasprintf("%.200s in it is a link or no file", entry->path));
	if (str_starts(entry->path, "objects/"))
		return take_object(r, entry, dir_fd, name, err);
	if (str_starts(entry->path, "refs/"))
		return take_ref(r, entry, dir_fd, name, err);
	return 0;
}

static int read_packed(struct reading *r, int fetched_fd, struct error *err)
{
	_cleanup_error_ struct error bad = { 0 };
	_cleanup_buf_ struct buf text = { 0 };
	bool there;

	if (git_fetched_read(fetched_fd, "packed-refs", GIT_PACKED_MAX, &text, &there, &bad) < 0 &&
	    bad.code != ERR_TOO_LARGE) {
		error_move(err, &bad);
		return -1;
	}
	if (!bad.code && (!there || git_packed_parse(buf_str(&text), text.len, r->q->sha256,
						     &r->place->refs, &bad) == 0))
		return 0;
	return refuse(r, xstrdup(bad.message));
}

/* Where HEAD is: what the place wrote, else what was staged. */
static int read_head(struct reading *r, int fetched_fd, const json_t *about, struct error *err)
{
	struct git_place *place = r->place;
	_cleanup_buf_ struct buf text = { 0 };
	const char *staged = json_str(about, "head"), *staged_ref = json_str(about, "headRef");
	_cleanup_error_ struct error bad = { 0 };
	bool there;

	if (git_fetched_read(fetched_fd, "HEAD", GIT_REF_FILE_MAX, &text, &there, &bad) < 0 ||
	    (there &&
	     !git_ref_parse(buf_str(&text), text.len, r->q->sha256, place->head, place->head_ref)))
		return refuse(r, xstrdup("its HEAD is not what git writes"));
	if (!there && staged_ref)
		snprintf(place->head_ref, sizeof(place->head_ref), "%s", staged_ref);
	if (!there && !staged_ref && staged)
		snprintf(place->head, sizeof(place->head), "%s", staged);
	if (!place->head_ref[0])
		return 0;

	const struct git_ref *ref = git_refs_find(&place->refs, place->head_ref);

	if (ref && ref->target)
		return refuse(r, xstrdup("its branch points at another one"));
	if (ref) {
		memcpy(place->head, ref->oid, sizeof(place->head));
		return 0;
	}
	if (git_refs_find(&r->gone, place->head_ref))
		return 0;
	if (staged && str_equal(staged_ref, place->head_ref)) {
		snprintf(place->head, sizeof(place->head), "%s", staged);
		return 0;
	}

	/* A branch that was staged and not written since: the host has it, or had it. */
	_cleanup_(git_refs_clear) struct git_refs host = { 0 };

	if (git_host_refs(r->q->repo, r->q->sha256, &host, err) < 0)
		return -1;
	ref = git_refs_find(&host, place->head_ref);
	if (ref)
		memcpy(place->head, ref->oid, sizeof(place->head));
	return 0;
}

static int read_index(struct reading *r, int fetched_fd, char **why, struct error *err)
{
	_cleanup_error_ struct error bad = { 0 };
	struct git_place *place = r->place;

	if (git_private_make(r->q, err) < 0)
		return -1;
	if (index_entries_fetch(r->q, fetched_fd, &place->index, &place->has_index, &bad) == 0)
		return 0;
	index_entries_clear(&place->index);
	place->has_index = false;
	if (bad.code == ERR_CANCELLED || bad.code == ERR_DISK_FULL) {
		error_move(err, &bad);
		return -1;
	}
	*why = xstrdup(bad.message);
	return 0;
}

bool git_place_wrote(int fetched_fd)
{
	return faccessat(fetched_fd, ".git", F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
}

int git_place_read(const struct git_quarantine *q, int fetched_fd, const json_t *about,
		   bool objects, struct git_place *out, char **why, char **index_why,
		   struct error *err)
{
	struct reading r = { .q = q, .place = out, .objects = objects, .why = why };
	struct tree_walk_options options = { .max_depth = MAX_DEPTH };
	_cleanup_close_ int git_fd =
		openat(fetched_fd, ".git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_error_ struct error bad = { 0 };
	int rc = 0;

	if (git_fd < 0 && errno != ENOENT) {
		*why = xstrdup(".git is no directory there any more");
		return 0;
	}
	if (git_fd >= 0 && tree_walk(git_fd, &options, take_entry, &r, &bad) < 0) {
		if (bad.code != ERR_TOO_LARGE) {
			error_move(err, &bad);
			rc = -1;
		} else {
			refuse(&r, xstrdup(bad.message));
		}
	}
	if (rc == 0 && !*why)
		rc = read_packed(&r, fetched_fd, err);
	if (rc == 0 && !*why)
		rc = read_head(&r, fetched_fd, about, err);
	if (rc == 0 && !*why)
		rc = read_index(&r, fetched_fd, index_why, err);
	git_refs_clear(&r.gone);
	return rc;
}
