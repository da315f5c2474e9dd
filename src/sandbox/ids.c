/*
 * Ranges of user ids. Two sandboxes never share a host uid: what one of them leaves in a file, a
 * keyring, an inotify or rlimit account is not another's, and a process that got out of its user
 * namespace would be a user who owns nothing.
 *
 * Which ranges are in use is known from the recipes of the places and stores; a registry that all
 * keepers of the machine share keeps them out of each other's way. It is in /run: after a reboot
 * keepers put what they still have files of back into it.
 */
#include "sandbox/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/sha256.h"
#include "base/text.h"

#define REGISTRY "/run/berth-uids"
#define DATABASE_MAX (4u << 20)
#define RANGES 4096u
#define KEPT_MAX 32u

/* Field `which` of the lines, counted from 0; with `length` the next field is how many follow. */
static int check_database(const char *path, int which, bool length, uint32_t base, uint64_t end,
			  struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };
	char *rest, *line;

	if (file_read(AT_FDCWD, path, &text, DATABASE_MAX, NULL) < 0)
		return 0;
	rest = text.data;
	while (rest && (line = strsep(&rest, "\n"))) {
		char *field = NULL;
		int64_t first, many = 1;

		for (int i = 0; i <= which; i++)
			field = strsep(&line, ":");
		if (!field || !parse_i64(field, 0, UINT32_MAX, &first))
			continue;
		if (length && (!line || !parse_i64(strsep(&line, ":"), 0, UINT32_MAX, &many)))
			continue;
		if ((uint64_t)first < end && (uint64_t)(first + many) > base)
			return error_set(
				err, ERR_VALIDATION,
				"%s gives away user ids from %lld on, which sandboxes would use "
				"(%u and up); choose another base",
				path, (long long)first, base);
	}
	return 0;
}

static void entry_name(uint32_t number, char out[16])
{
	snprintf(out, 16, "%u", number);
}

/* Whether the keeper's directory that an entry names is gone: then no file of the range is left. */
static bool is_orphan(const struct range_book *book, const char *name, void *arg)
{
	char owner[PATH_BOUND + 1];
	ssize_t n = readlinkat(book->registry_fd, name, owner, sizeof(owner) - 1);
	struct stat st;

	(void)arg;
	if (n <= 0)
		return false;
	owner[n] = 0;
	return stat(owner, &st) < 0 && errno == ENOENT;
}

/* Removes the entries that `is_stale` says so of. */
static void drop_entries(struct range_book *book,
			 bool (*is_stale)(const struct range_book *book, const char *name,
					  void *arg),
			 void *arg)
{
	int fd = openat(book->registry_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && is_stale(book, entry->d_name, arg))
			unlinkat(book->registry_fd, entry->d_name, 0);
	if (dir)
		closedir(dir);
}

struct users {
	bool (*is_used)(uint32_t number, void *arg);
	void *arg;
};

static bool is_unused(const struct range_book *book, const char *name, void *arg)
{
	const struct users *users = arg;
	char owner[PATH_BOUND + 1];
	ssize_t n = readlinkat(book->registry_fd, name, owner, sizeof(owner) - 1);
	int64_t number;

	if (n <= 0 || !parse_i64(name, 0, book->count - 1, &number))
		return false;
	owner[n] = 0;
	return strcmp(owner, book->owner) == 0 && !users->is_used((uint32_t)number, users->arg);
}

void range_give_back_unused(struct range_book *book, bool (*is_used)(uint32_t, void *), void *arg)
{
	if (book->registry_fd >= 0)
		drop_entries(book, is_unused, &(struct users){ is_used, arg });
}

int range_book_open(struct range_book *book, uint32_t base, const char *owner, struct error *err)
{
	uint64_t end = (uint64_t)base + (uint64_t)RANGES * RANGE_SIZE;

	*book = (struct range_book){
		.base = base, .count = RANGES, .owner = owner, .registry_fd = -1
	};
	if (end > UINT32_MAX)
		return error_set(err, ERR_VALIDATION, "user ids from %u on do not leave room",
				 base);
	if (check_database("/etc/subuid", 1, true, base, end, err) < 0 ||
	    check_database("/etc/subgid", 1, true, base, end, err) < 0 ||
	    check_database("/etc/passwd", 2, false, base, end, err) < 0)
		return -1;
	if (mkdir(REGISTRY, 0700) == 0 || errno == EEXIST)
		book->registry_fd = open(REGISTRY, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (book->registry_fd >= 0)
		drop_entries(book, is_orphan, NULL);
	return 0;
}

/* The owner is a symlink's text: made and read in one step each, and never followed. */
static bool enter(struct range_book *book, uint32_t number)
{
	char name[16];

	entry_name(number, name);
	return symlinkat(book->owner, book->registry_fd, name) == 0;
}

/* Ours and not in use by what we know: left by a predecessor that died in between. */
static bool may_take_over(struct range_book *book, uint32_t number)
{
	char name[16], owner[PATH_BOUND + 1];
	ssize_t n;

	entry_name(number, name);
	n = readlinkat(book->registry_fd, name, owner, sizeof(owner) - 1);
	if (n <= 0)
		return false;
	owner[n] = 0;
	if (strcmp(owner, book->owner) == 0) {
		book->kept -= book->kept > 0;
		return true;
	}
	if (!is_orphan(book, name, NULL))
		return false;
	unlinkat(book->registry_fd, name, 0);
	return enter(book, number);
}

int range_take(struct range_book *book, bool (*is_used)(uint32_t, void *), void *arg,
	       uint32_t *number, struct error *err)
{
	uint8_t digest[SHA256_SIZE];
	uint32_t start;

	/* Keepers begin at different places, so that they seldom meet. */
	sha256_once(book->owner, strlen(book->owner), digest);
	start = get_le32(digest) % book->count;
	for (uint32_t i = 0; i < book->count; i++) {
		uint32_t n = (start + i) % book->count;

		if (is_used(n, arg))
			continue;
		if (book->registry_fd >= 0 && !enter(book, n) &&
		    (errno != EEXIST || !may_take_over(book, n)))
			continue;
		*number = n;
		return 0;
	}
	return error_set(err, ERR_TOO_MANY, "all %u ranges of user ids are in use", book->count);
}

void range_keep(struct range_book *book, uint32_t number)
{
	if (book->registry_fd >= 0)
		enter(book, number);
}

void range_give_back(struct range_book *book, uint32_t number)
{
	char name[16];

	/* The next place takes it over; the keeper gives all of them back when it ends. */
	if (book->kept < KEPT_MAX) {
		book->kept++;
		return;
	}
	entry_name(number, name);
	if (book->registry_fd >= 0)
		unlinkat(book->registry_fd, name, 0);
}
