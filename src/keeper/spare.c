/*
 * Spare directories: what a native place leaves behind when nobody wrote anything into it is used
 * again for the next one. File systems take long over making inodes where some were deleted a
 * moment ago (ext4 looks at each of those): making and removing the dozen of a place would cost
 * more than all of its walls.
 *
 * A spare must not tell its next owner anything about the last one. What the payload could reach is
 * kept only where it cannot be told from fresh: empty, never grown, no attributes, no flags.
 * Everything else goes the long way. A layer over a workspace is not kept at all: it is removed
 * before, and if that would take long the rest goes with it.
 *
 * The relay's socket is kept as well, open here: making one is making an inode. Who has connected
 * to it and was not heard belongs to the last owner, so those are hung up on.
 *
 *     DIR/spares/<tag>/   as a place's directory; its rename from places/ is the place's end, its
 *                         rename back, with a new recipe inside, is the next one's beginning
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "keeper/keeper.h"

#define SPARES_NAME "spares"
#define BACKLOG 16
#define LITTLE_COUNT 64
#define LITTLE_DEPTH 8
#define LITTLE_BLOCKS 2048          /* of 512 bytes: a large file takes long to remove */
#define GETFLAGS _IOR('f', 1, long) /* FS_IOC_GETFLAGS */

static bool is_dots(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static DIR *list(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (fd >= 0 && !dir)
		close(fd);
	return dir;
}

static long flags_of(int fd)
{
	int flags = 0;

	return ioctl(fd, GETFLAGS, &flags) < 0 ? -1 : flags;
}

static bool is_empty(DIR *dir)
{
	struct dirent *entry;

	while ((entry = readdir(dir)))
		if (!is_dots(entry->d_name))
			return false;
	return true;
}

/* Whether somebody who gets this directory could see that another had it. */
static bool is_like_new(DIR *dir, long flags)
{
	static const struct timespec now[] = { { .tv_nsec = UTIME_NOW }, { .tv_nsec = UTIME_NOW } };
	struct stat st;

	return fstat(dirfd(dir), &st) == 0 && st.st_size <= st.st_blksize && st.st_nlink == 2 &&
	       is_empty(dir) && flistxattr(dirfd(dir), NULL, 0) == 0 &&
	       flags_of(dirfd(dir)) == flags && futimens(dirfd(dir), now) == 0;
}

static bool areas_are_like_new(DIR *files)
{
	long flags = flags_of(dirfd(files));
	struct dirent *entry;
	bool good = true;

	while (good && (entry = readdir(files))) {
		DIR *area;

		if (is_dots(entry->d_name))
			continue;
		area = list(dirfd(files), entry->d_name);
		good = area && is_like_new(area, flags);
		if (area)
			closedir(area);
	}
	return good;
}

/*
 * What a layer over a workspace holds when little was written. More than that, or anything large,
 * is removed where nobody has to wait for it.
 */
static bool remove_little(int parent, const char *name, unsigned depth, unsigned *left)
{
	struct dirent *entry;
	struct stat st;
	bool good = true;
	DIR *dir;

	if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT;
	if (*left == 0 || st.st_blocks > LITTLE_BLOCKS)
		return false;
	--*left;
	if (!S_ISDIR(st.st_mode))
		return unlinkat(parent, name, 0) == 0;
	dir = depth < LITTLE_DEPTH ? list(parent, name) : NULL;
	while (dir && good && (entry = readdir(dir)))
		good = is_dots(entry->d_name) ||
		       remove_little(dirfd(dir), entry->d_name, depth + 1, left);
	if (dir)
		closedir(dir);
	return dir && good && unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

static bool remove_layer(DIR *files)
{
	unsigned left = LITTLE_COUNT;

	return remove_little(dirfd(files), SANDBOX_UPPER, 0, &left) &&
	       remove_little(dirfd(files), SANDBOX_WORK, 0, &left);
}

/* The relay's and the keeper's own files: no payload sees them, so it is enough to empty them. */
static bool empty_file(int parent, const char *name)
{
	_cleanup_close_ int fd =
		openat(parent, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return errno == ENOENT;
	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
	       (st.st_size == 0 || ftruncate(fd, 0) == 0);
}

static bool empty_spool(DIR *spool)
{
	struct dirent *entry;

	while ((entry = readdir(spool))) {
		if (is_dots(entry->d_name))
			continue;
		if (strcmp(entry->d_name, RELAY_JOURNAL_FILE) == 0) {
			if (!empty_file(dirfd(spool), entry->d_name))
				return false;
		} else if (unlinkat(dirfd(spool), entry->d_name, 0) < 0) {
			return false;
		}
	}
	return true;
}

static int bind_socket(int place_fd, int *out, struct error *err)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (fd < 0)
		return error_errno(err, errno, "making a socket");
	/* Through the descriptor: the path itself may be longer than an address can be. */
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" PLACE_SOCKET_NAME,
		 place_fd);
	/* Whoever connects before the relay is ready waits for it instead of being refused. */
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, BACKLOG) < 0)
		return error_errno(err, errno, "binding the relay's socket");
	*out = steal_fd(&fd);
	return 0;
}

int spare_listener(struct place *place, int place_fd, int *out, struct error *err)
{
	struct keeper *keeper = place->keeper;

	if (place->listener >= 0) {
		*out = fcntl(place->listener, F_DUPFD_CLOEXEC, 0);
		return *out < 0 ? error_errno(err, errno, "taking the relay's socket") : 0;
	}
	/* A spare of an earlier keeper has one that nobody listens on. */
	unlinkat(place_fd, PLACE_SOCKET_NAME, 0);
	if (bind_socket(place_fd, out, err) < 0)
		return -1;
	if (place->kind == PLACE_NATIVE && !place->store &&
	    keeper->listener_count < LISTENERS_MAX) {
		place->listener = fcntl(*out, F_DUPFD_CLOEXEC, 0);
		keeper->listener_count += place->listener >= 0;
	}
	return 0;
}

static void drop_listener(struct keeper *keeper, int *listener)
{
	keeper->listener_count -= *listener >= 0;
	close_fdp(listener);
}

void spare_drop_listener(struct place *place)
{
	drop_listener(place->keeper, &place->listener);
}

/* Whoever waits there waits for the last owner. True: nobody does any more. */
static bool hang_up(int listener)
{
	for (int i = 0; i < LITTLE_COUNT; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return errno == EAGAIN;
		close(fd);
	}
	return false;
}

static bool renew(const struct place *place, int place_fd)
{
	DIR *files = list(place_fd, PLACE_FILES_NAME), *spool = list(place_fd, PLACE_SPOOL_NAME);
	bool good = files && spool && (!place->overlaid || remove_layer(files)) &&
		    areas_are_like_new(files) && empty_spool(spool) &&
		    empty_file(place_fd, PLACE_LOG_NAME) &&
		    (place->listener < 0 || hang_up(place->listener));

	if (files)
		closedir(files);
	if (spool)
		closedir(spool);
	return good;
}

static bool may_be_kept(const struct place *place)
{
	const struct keeper *keeper = place->keeper;

	return place->kind == PLACE_NATIVE && !place->store && keeper->spare_count < SPARES_MAX &&
	       keeper->spares_fd >= 0;
}

bool spare_is_left(const struct place *place)
{
	const struct keeper *keeper = place->keeper;
	_cleanup_close_ int place_fd = -1;
	bool empty = !place->overlaid;
	struct dirent *entry;
	DIR *files;

	if (!may_be_kept(place) || dir_open(keeper->places_fd, place->id, &place_fd, NULL) < 0)
		return false;
	files = list(place_fd, PLACE_FILES_NAME);
	if (!files)
		return false;
	while (empty && (entry = readdir(files))) {
		DIR *area = is_dots(entry->d_name) ? NULL : list(dirfd(files), entry->d_name);

		empty = area ? is_empty(area) : is_dots(entry->d_name);
		if (area)
			closedir(area);
	}
	closedir(files);
	return empty;
}

bool spare_keep(struct place *place)
{
	struct keeper *keeper = place->keeper;
	_cleanup_close_ int place_fd = -1;
	struct spare *spare;

	if (!may_be_kept(place) || dir_open(keeper->places_fd, place->id, &place_fd, NULL) < 0 ||
	    !renew(place, place_fd) ||
	    renameat(keeper->places_fd, place->id, keeper->spares_fd, place->tag) < 0)
		return false;
	spare = &keeper->spares[keeper->spare_count++];
	memcpy(spare->name, place->tag, sizeof(place->tag));
	spare->listener = steal_fd(&place->listener);
	return true;
}

/* The first process of the sandbox gives them on, which it can only do with what is its own. */
static void give(int parent, const char *name, uid_t base)
{
	DIR *dir = list(parent, name);
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (!is_dots(entry->d_name) &&
		    fchownat(dirfd(dir), entry->d_name, base, base, AT_SYMLINK_NOFOLLOW) < 0)
			log_warn("spare %s: %s", entry->d_name, strerror(errno));
	if (dir)
		closedir(dir);
}

int spare_take(struct place *place, uid_t base, int *place_fd)
{
	struct keeper *keeper = place->keeper;
	_cleanup_close_ int fd = -1;
	struct spare *spare;

	if (place->kind != PLACE_NATIVE || place->store || keeper->spare_count == 0)
		return 0;
	spare = &keeper->spares[--keeper->spare_count];
	place->listener = steal_fd(&spare->listener);
	if (dir_open(keeper->spares_fd, spare->name, &fd, NULL) < 0) {
		spare_drop_listener(place);
		return 0;
	}
	if (base) {
		give(fd, PLACE_FILES_NAME, base);
		give(fd, PLACE_SPOOL_NAME, base);
	}
	if (recipe_write(place, fd, NULL) < 0 ||
	    renameat(keeper->spares_fd, spare->name, keeper->places_fd, place->id) < 0) {
		dir_remove_tree(keeper->spares_fd, spare->name, NULL);
		spare_drop_listener(place);
		return 0;
	}
	*place_fd = steal_fd(&fd);
	return 1;
}

void spare_remove_all(struct keeper *keeper)
{
	while (keeper->spare_count > 0) {
		struct spare *spare = &keeper->spares[--keeper->spare_count];

		dir_remove_tree(keeper->spares_fd, spare->name, NULL);
		drop_listener(keeper, &spare->listener);
	}
	close_fdp(&keeper->spares_fd);
	unlinkat(keeper->dir_fd, SPARES_NAME, AT_REMOVEDIR);
}

/* Those of an earlier keeper are as good as our own: what is in spares/ was finished. */
void spare_load_all(struct keeper *keeper)
{
	_cleanup_error_ struct error err = { 0 };
	struct dirent *entry;
	DIR *dir;

	keeper->spares_fd = -1;
	if (dir_make(keeper->dir_fd, SPARES_NAME, 0700, &err) < 0 ||
	    dir_open(keeper->dir_fd, SPARES_NAME, &keeper->spares_fd, &err) < 0) {
		log_warn("%s", err.message);
		return;
	}
	dir = list(keeper->spares_fd, ".");
	while (dir && (entry = readdir(dir))) {
		if (is_dots(entry->d_name))
			continue;
		if (keeper->spare_count < SPARES_MAX && strlen(entry->d_name) < SPARE_NAME_SIZE) {
			struct spare *spare = &keeper->spares[keeper->spare_count++];

			snprintf(spare->name, SPARE_NAME_SIZE, "%.16s", entry->d_name);
			spare->listener = -1;
		} else {
			dir_remove_tree(keeper->spares_fd, entry->d_name, NULL);
		}
	}
	if (dir)
		closedir(dir);
}
