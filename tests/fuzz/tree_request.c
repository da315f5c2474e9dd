/*
 * What a server says about trees, as the relay's children take it: hash, put or get by the first
 * byte, on real files in a directory of its own. Nothing is ever made outside that directory, also
 * through the links in it.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "relay/file_tree_work.h"
#include "wire/place.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char top[] = "/tmp/berth-fuzz-XXXXXX";
static int top_fd, null_fd;

static void remove_top(void)
{
	dir_remove_tree(AT_FDCWD, top, NULL);
}

/* A fresh tree each time, so that every input means the same whenever it is tried. */
static void plant(void)
{
	int fd;

	if (dir_remove_tree(top_fd, "root", NULL) < 0 || mkdirat(top_fd, "root", 0755) < 0 ||
	    mkdirat(top_fd, "root/d", 0755) < 0 || symlinkat("../outside", top_fd, "root/l") < 0 ||
	    mkfifoat(top_fd, "root/p", 0600) < 0)
		abort();
	fd = openat(top_fd, "root/f", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	if (write(fd, "text", 4) != 4)
		abort();
	close(fd);
	fd = openat(top_fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dup2(fd, RELAY_FD_ROOT) < 0)
		abort();
	close(fd);
}

static void start(void)
{
	/* Descriptors with a meaning are taken before any other is opened. */
	for (int fd = 0; fd < RELAY_FD_END; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
			abort();
	if (!mkdtemp(top))
		abort();
	atexit(remove_top);
	top_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	umask(0);
	if (mkdirat(top_fd, "root", 0755) < 0 || mkdirat(top_fd, "outside", 0755) < 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct relay relay = { .config.payload.home = "/" };
	struct wire_message m = { 0 };
	struct tree_job job = { .relay = &relay, .request = &m };

	if (size < 1)
		return 0;
	if (top_fd == 0)
		start();
	plant();
	job.in_fd = memfd_create("records", MFD_CLOEXEC);
	job.out_fd = null_fd;
	if (write(job.in_fd, data + 1, size - 1) != (ssize_t)size - 1 ||
	    lseek(job.in_fd, 0, SEEK_SET) != 0)
		abort();
	switch (data[0] % 3) {
	case 0:
		m.tree_hash = (struct wire_tree_hash){ .root = "." };
		tree_hash_work(&job);
		break;
	case 1:
		m.tree_put = (struct wire_tree_put){ .root = "." };
		tree_put_work(&job);
		break;
	default:
		m.tree_get = (struct wire_tree_get){ .root = ".", .max_file = 1 << 20 };
		tree_get_work(&job);
	}
	close(job.in_fd);
	/* It is still empty, or it could not be removed. */
	if (unlinkat(top_fd, "outside", AT_REMOVEDIR) < 0 || mkdirat(top_fd, "outside", 0755) < 0)
		abort();
	return 0;
}
