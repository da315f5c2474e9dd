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
#include "keeper/keeper.h"

/* A v2 tree of its own, or beside v1 controllers; the latter tracks and kills just as well. */
static const char *const v2_mounts[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };

char *cgroup_base_make(const char *dir)
{
	uint8_t digest[SHA256_SIZE];
	char tag[9];

	if (geteuid() != 0)
		return NULL;
	sha256_once(dir, strlen(dir), digest);
	hex_encode(tag, digest, 4);
	for (size_t i = 0; i < ARRAY_SIZE(v2_mounts); i++) {
		_cleanup_free_ char *mark = xasprintf("%s/cgroup.controllers", v2_mounts[i]);
		_cleanup_free_ char *base = xasprintf("%s/berth-%s", v2_mounts[i], tag);
		_cleanup_free_ char *kill_file = xasprintf("%s/cgroup.kill", base);

		if (access(mark, F_OK) < 0)
			continue;
		if (mkdir(base, 0755) < 0 && errno != EEXIST)
			continue;
		if (access(kill_file, W_OK) == 0)
			return steal(base);
		rmdir(base);
	}
	return NULL;
}

int cgroup_make(const char *path, struct error *err)
{
	if (path && mkdir(path, 0755) < 0 && errno != EEXIST)
		return error_errno(err, errno, "making %s", path);
	return 0;
}

int cgroup_open(const char *path)
{
	return path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
}

void cgroup_kill(const char *path)
{
	_cleanup_close_ int dir = cgroup_open(path);
	_cleanup_close_ int fd = dir >= 0 ? openat(dir, "cgroup.kill", O_WRONLY | O_CLOEXEC) : -1;

	if (fd >= 0 && write(fd, "1", 1) < 0)
		errno = 0;
}

bool cgroup_is_empty(const char *path)
{
	_cleanup_close_ int dir = cgroup_open(path);
	_cleanup_buf_ struct buf text = { 0 };

	if (dir < 0 || file_read(dir, "cgroup.events", &text, 4096, NULL) < 0)
		return true;
	return strstr(buf_str(&text), "populated 0") != NULL;
}

int cgroup_remove(const char *path)
{
	struct dirent *entry;
	DIR *dir;

	if (!path)
		return 0;
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
			unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
	if (dir)
		closedir(dir);
	return rmdir(path) < 0 && errno != ENOENT ? -1 : 0;
}
