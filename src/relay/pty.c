#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "base/fd.h"
#include "relay/exec.h"

/* From the kernel's headers, which musl does not bring. */
#ifndef TIOCGPTPEER
#define TIOCGPTPEER _IO('T', 0x41)
#endif
#define DEFAULT_ROWS 24
#define DEFAULT_COLS 80

int pty_resize(int master, uint32_t rows, uint32_t cols)
{
	struct winsize size = { .ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols };

	return ioctl(master, TIOCSWINSZ, &size) < 0 ? -errno : 0;
}

int pty_open(uint32_t rows, uint32_t cols, const struct user *user, int *master, int *slave,
	     struct error *err)
{
	_cleanup_close_ int m = -1, s = -1;
	int unlock = 0;

	/* A new terminal belongs to who opens it; a relay in a sandbox could not give it away
	 * later. */
	if (user)
		user_files_enter(user);
	m = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (user)
		user_files_leave();

	if (m < 0)
		return error_errno(err, errno, "opening a terminal");
	/* The other end is asked of this one, not looked up by name: the name may be another's
	 * mount. */
	if (ioctl(m, TIOCSPTLCK, &unlock) < 0)
		return error_errno(err, errno, "unlocking a terminal");
	s = ioctl(m, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (s < 0)
		return error_errno(err, errno, "opening the far end of a terminal");
	if (user && fchown(s, user->uid, (gid_t)-1) < 0 && errno != EPERM)
		return error_errno(err, errno, "giving a terminal to its user");
	pty_resize(m, rows ? rows : DEFAULT_ROWS, cols ? cols : DEFAULT_COLS);
	*master = steal_fd(&m);
	*slave = steal_fd(&s);
	return 0;
}
