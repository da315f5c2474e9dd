/*
 * A keeper whose disk is full. Whatever is left of it, a place works or is refused with the reason,
 * and nothing that was made by halves is met by the next one.
 */
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "native_fixture.h"
#include "base/fd.h"

#define PAGE 4096ul
#define PLENTY "size=64m,nr_inodes=20000"
/* What a place needs beside its /etc, and then some. */
#define FEW 24
#define ENOUGH 9000

static const struct wire_sandbox plain;

struct amount {
	unsigned long pages, inodes;
};

static void resize(struct fixture *f, const char *options)
{
	assert_int_equal(mount(NULL, f->base, NULL, MS_REMOUNT, options), 0);
}

/* So much is free, and no more. */
static void leave_room(struct fixture *f, struct amount room)
{
	struct statvfs now;
	char options[100];

	assert_int_equal(statvfs(f->base, &now), 0);
	snprintf(options, sizeof(options), "size=%lu,nr_inodes=%lu",
		 (now.f_blocks - now.f_bfree + room.pages) * PAGE,
		 now.f_files - now.f_ffree + room.inodes);
	resize(f, options);
}

static struct amount counted;

static int count_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)path, (void)type, (void)at;
	counted.inodes++;
	counted.pages += (unsigned long)st->st_blocks * 512 / PAGE;
	return 0;
}

static void etc_path(const struct fixture *f, char out[200])
{
	snprintf(out, 200, "%s/etc", f->dir);
}

/* What all of the keeper's /etc takes. */
static struct amount size_of_etc(const struct fixture *f)
{
	char path[200];

	etc_path(f, path);
	counted = (struct amount){ 0 };
	assert_int_equal(nftw(path, count_one, 16, FTW_PHYS), 0);
	return counted;
}

static const char LOOK[] =
	"cat /etc/passwd /etc/nsswitch.conf; find /etc | sort; readlink /etc/mtab;"
	" cat /etc/ld.so.cache /etc/ssl/certs/* 2>/dev/null | cksum";

/* An /etc that was made while there was room. */
struct whole {
	char *seen;
	struct amount size;
};

static void whole_clear(struct whole *whole)
{
	free(whole->seen);
}

static struct whole make_with_plenty(struct fixture *f)
{
	struct whole whole;
	char held[100];

	/* A size of no pages would be no limit at all. */
	snprintf(held, sizeof(held), "%s/held", f->base);
	assert_int_equal(file_replace(AT_FDCWD, held, "held", 4, 0600, NULL), 0);
	have_place(f, "full-before", &plain);
	whole.seen = xstrdup(run_in(f, "full-before", LOOK, NULL));
	whole.size = size_of_etc(f);
	has(whole.seen, "/proc/self/mounts\n");
	assert_true(whole.size.pages > FEW && whole.size.inodes > FEW);
	assert_int_equal(destroy(f, "full-before"), 0);
	return whole;
}

static void works(struct fixture *f, const char *id, const struct whole *whole)
{
	assert_string_equal(run_in(f, id, LOOK, NULL), whole->seen);
	assert_int_equal(destroy(f, id), 0);
}

/* True: it was made. */
static bool try_with(struct fixture *f, struct amount room, const struct whole *whole)
{
	static unsigned tries;
	char id[40], etc[200];
	unsigned long left;

	snprintf(id, sizeof(id), "full-%u", ++tries);
	etc_path(f, etc);
	await_no_files(f);
	assert_int_equal(dir_remove_tree(AT_FDCWD, etc, NULL), 0);
	leave_room(f, room);
	if (make_place(f, id, &plain) == 0) {
		resize(f, PLENTY);
		works(f, id, whole);
		return true;
	}
	has(f->refusal, "No space left on device");
	/* What was made of an /etc does not take up the little that there is, unless it is whole.
	 */
	left = access(etc, F_OK) == 0 ? size_of_etc(f).inodes : 0;
	assert_true(left <= 1 || left == whole->size.inodes);
	resize(f, PLENTY);
	snprintf(id, sizeof(id), "full-%u", ++tries);
	have_place(f, id, &plain);
	works(f, id, whole);
	return false;
}

static void a_place_works_or_is_refused_however_few_pages_are_left(void **state)
{
	_cleanup_(whole_clear) struct whole whole = make_with_plenty(*state);
	struct amount room = { 0, ENOUGH };

	for (; room.pages < whole.size.pages; room.pages = room.pages * 2 + 1)
		assert_false(try_with(*state, room, &whole));
	for (room.pages = whole.size.pages - 3; !try_with(*state, room, &whole); room.pages++)
		assert_true(room.pages < whole.size.pages + FEW);
}

static void a_place_works_or_is_refused_however_few_files_are_left(void **state)
{
	_cleanup_(whole_clear) struct whole whole = make_with_plenty(*state);
	struct amount room = { ENOUGH, 0 };

	for (; room.inodes < whole.size.inodes; room.inodes = room.inodes * 2 + 1)
		assert_false(try_with(*state, room, &whole));
	/* One by one, up to the last of its files and links. */
	for (room.inodes = whole.size.inodes - 10; !try_with(*state, room, &whole); room.inodes++)
		assert_true(room.inodes < whole.size.inodes + FEW);
}

/* For whom the mount must not be seen outside. */
static bool have_own_mounts(void)
{
	return geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
	       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_place_works_or_is_refused_however_few_pages_are_left),
		TEST(a_place_works_or_is_refused_however_few_files_are_left),
	};
	int failed;

	if (!have_own_mounts()) {
		printf("SKIPPED: only root has a disk of its own to fill\n");
		return 0;
	}
	disk = PLENTY;
	failed = cmocka_run_group_tests_name("full disk", tests, NULL, NULL);
	as_user = true;
	return failed +
	       cmocka_run_group_tests_name("full disk of an ordinary user", tests, NULL, NULL);
}
