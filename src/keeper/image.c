#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "keeper/keeper.h"

#define IMAGE_MAX (64 << 20)
#ifndef F_ADD_SEALS
#define F_ADD_SEALS 1033
#endif
#define SEALS 0x000f /* seal, shrink, grow, write */

int image_load(const char *path, int *fd, struct error *err)
{
	_cleanup_close_ int file = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int image = -1;
	struct stat st;
	off_t offset = 0;

	if (file < 0 || fstat(file, &st) < 0)
		return error_errno(err, errno, "opening %s", path);
	if (!S_ISREG(st.st_mode) || st.st_size > IMAGE_MAX)
		return error_set(err, ERR_VALIDATION, "%s is no program", path);
	image = memfd_create("berth-relay", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (image < 0)
		return error_errno(err, errno, "making a memfd");
	while (offset < st.st_size) {
		ssize_t n = sendfile(image, file, &offset, (size_t)(st.st_size - offset));

		if (n <= 0 && errno != EINTR)
			return error_errno(err, n < 0 ? errno : EIO, "copying %s", path);
	}
	/* Sealed: no relay, and nothing a relay runs, can change what the next relay will be. */
	if (fcntl(image, F_ADD_SEALS, SEALS) < 0)
		return error_errno(err, errno, "sealing the relay");
	*fd = steal_fd(&image);
	return 0;
}
