#include "relay/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fd.h"
#include "relay/background.h"
#include "relay/file_info.h"
#include "relay/root_path.h"
#include "wire/place.h"

#define PAGE_MAX 1000
#define RENAME_NOREPLACE_ 1u

static void refuse_errno(struct session *s, uint32_t stream, int r)
{
	session_refuse(s, stream, root_path_error(-r), -r, "%s", root_path_text(-r));
}

static void answer(struct session *s, uint32_t stream, int r)
{
	if (r < 0)
		refuse_errno(s, stream, r);
	else
		session_done(s, stream);
}

static const struct user *payload(const struct session *s)
{
	return &s->relay->config.payload;
}

/* dirfd with name "" means the descriptor itself. */
static void send_info(struct session *s, uint32_t stream, const struct stat *st, int dirfd,
		      const char *link_name, const char *shown_name)
{
	char tag[FILE_TAG_SIZE], target[PATH_BOUND + 1];
	struct wire_file_info info;
	ssize_t n;

	file_describe(st, tag, &info);
	info.name = shown_name;
	if (S_ISLNK(st->st_mode)) {
		n = readlinkat(dirfd, link_name, target, sizeof(target) - 1);
		target[MAX_OF(n, 0)] = 0;
		info.target = target;
	}
	session_send(s, stream, WIRE_FILE_INFO, &info);
}

void files_stat(struct session *s, const struct wire_message *m)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	user_files_enter(payload(s));
	r = root_path_open(s->relay, m->file_stat.path, O_PATH | O_NOFOLLOW);
	fd = MAX_OF(r, -1);
	if (r >= 0 && fstat(fd, &st) < 0)
		r = -errno;
	if (r < 0)
		refuse_errno(s, m->stream, r);
	else
		send_info(s, m->stream, &st, fd, "", NULL);
	user_files_leave();
}

/* The directory offset of the file system is the cursor: it stays true while entries come and go.
 */
static void list_page(struct session *s, const struct wire_message *m, DIR *dir)
{
	uint32_t limit = m->file_list.limit ? m->file_list.limit : PAGE_MAX;
	struct wire_file_page page = { 0 };
	struct dirent *entry;

	if (m->file_list.cursor)
		seekdir(dir, (long)m->file_list.cursor);
	while ((entry = readdir(dir))) {
		struct stat st;

		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			send_info(s, m->stream, &st, dirfd(dir), entry->d_name, entry->d_name);
		page.cursor = (uint64_t)entry->d_off;
		/* A page may be shorter than asked for: links can have long targets. */
		if (--limit == 0 || !session_has_room(s))
			break;
	}
	if (!entry)
		page.cursor = 0;
	session_send(s, m->stream, WIRE_FILE_PAGE, &page);
}

void files_list(struct session *s, const struct wire_message *m)
{
	DIR *dir;
	int fd;

	user_files_enter(payload(s));
	fd = root_path_open(s->relay, m->file_list.path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
	if (fd < 0) {
		refuse_errno(s, m->stream, fd == -ENOTDIR ? -ENOTSUP : fd);
	} else if (!(dir = fdopendir(fd))) {
		refuse_errno(s, m->stream, -errno);
		close(fd);
	} else {
		list_page(s, m, dir);
		closedir(dir);
	}
	user_files_leave();
}

void files_mkdir(struct session *s, const struct wire_message *m)
{
	const struct wire_file_mkdir *mkdir_m = &m->file_mkdir;
	mode_t mode = mkdir_m->mode ? mkdir_m->mode : 0755;
	int r = 0;

	user_files_enter(payload(s));
	if (mkdir_m->path[0] == 0)
		r = -EINVAL;
	if (r == 0 && mkdir_m->parents)
		r = root_path_make_parents(s->relay, mkdir_m->path);
	if (r == 0)
		r = root_path_mkdir(s->relay, mkdir_m->path, mode);
	if (r == -EEXIST && mkdir_m->parents && root_path_check_dir(s->relay, mkdir_m->path) == 0)
		r = 0;
	answer(s, m->stream, r);
	user_files_leave();
}

void files_rename(struct session *s, const struct wire_message *m)
{
	const char *from_name, *to_name;
	_cleanup_close_ int from = -1;
	_cleanup_close_ int to = -1;
	int r;

	user_files_enter(payload(s));
	r = root_path_parent(s->relay, m->file_rename.from, &from_name);
	from = MAX_OF(r, -1);
	if (r >= 0)
		r = root_path_parent(s->relay, m->file_rename.to, &to_name);
	to = r >= 0 && from >= 0 ? r : -1;
	if (r >= 0)
		r = syscall(SYS_renameat2, from, from_name, to, to_name,
			    m->file_rename.no_replace ? RENAME_NOREPLACE_ : 0) < 0
			    ? -errno
			    : 0;
	/* Between file systems the caller has to copy: that is no escape. */
	if (r == -EXDEV && from >= 0 && to >= 0)
		session_refuse(s, m->stream, WERR_UNSUPPORTED, EXDEV,
			       "the two are on different file systems");
	else
		answer(s, m->stream, r);
	user_files_leave();
}

struct removal {
	struct background aside;
	struct relay *relay;
	uint64_t epoch; /* of the session that asked: an answer goes to no other */
	uint32_t stream;
	int parent;
	char name[256];
};

static int removal_work(void *arg)
{
	struct removal *removal = arg;

	errno = 0;
	if (dir_remove_tree(removal->parent, removal->name, NULL) == 0)
		return 0;
	return errno ? errno : EIO;
}

static void removal_done(struct background *aside, int errnum)
{
	struct removal *removal = container_of(aside, struct removal, aside);
	struct session *s = removal->relay->session;

	if (s && s->hello.epoch == removal->epoch && removal->stream <= s->highest_stream) {
		answer(s, removal->stream, -errnum);
		session_flush(s);
	}
	close(removal->parent);
	free(removal);
}

static int remove_tree(struct session *s, uint32_t stream, int *parent, const char *name)
{
	struct removal *removal = xcalloc(1, sizeof(*removal));

	removal->aside.done = removal_done;
	removal->relay = s->relay;
	removal->epoch = s->hello.epoch;
	removal->stream = stream;
	removal->parent = *parent;
	snprintf(removal->name, sizeof(removal->name), "%s", name);
	if (background_start(s->relay, &removal->aside, removal_work, removal) < 0) {
		free(removal);
		return -errno;
	}
	*parent = -1;
	return 0;
}

void files_remove(struct session *s, const struct wire_message *m)
{
	const char *name;
	_cleanup_close_ int parent = -1;
	struct stat st;
	bool later = false;
	int r;

	user_files_enter(payload(s));
	r = root_path_parent(s->relay, m->file_remove.path, &name);
	parent = MAX_OF(r, -1);
	if (r >= 0)
		r = fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
	if (r == 0 && S_ISDIR(st.st_mode) && m->file_remove.recursive) {
		r = remove_tree(s, m->stream, &parent, name);
		later = r == 0;
	} else if (r == 0) {
		r = unlinkat(parent, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0 ? -errno : 0;
	}
	if (!later)
		answer(s, m->stream, r == -EEXIST ? -ENOTEMPTY : r);
	user_files_leave();
}

void files_chmod(struct session *s, const struct wire_message *m)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	user_files_enter(payload(s));
	r = root_path_open(s->relay, m->file_chmod.path, O_PATH);
	fd = MAX_OF(r, -1);
	if (r >= 0 && fstat(fd, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
		r = -ENOTSUP;
	if (r >= 0)
		r = root_path_chmod(fd, m->file_chmod.mode);
	answer(s, m->stream, r);
	user_files_leave();
}
