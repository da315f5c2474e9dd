#include "cli/terminal.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "base/fd.h"

/* Signal handlers and atexit reach nothing but globals. */
static struct termios before;
static volatile sig_atomic_t is_raw;
static int size_fd = -1;

bool terminal_is_here(void)
{
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

void terminal_restore(void)
{
	if (!is_raw)
		return;
	is_raw = 0;
	tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

static void set_raw(void)
{
	struct termios raw = before;

	cfmakeraw(&raw);
	tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
	is_raw = 1;
}

static void die(int number)
{
	terminal_restore();
	signal(number, SIG_DFL);
	raise(number);
}

/* Stopped from outside: the shell gets its terminal as it was, and we get ours when we go on. */
static void pause_here(int number)
{
	int saved = errno;
	sigset_t stop;

	(void)number;
	terminal_restore();
	sigemptyset(&stop);
	sigaddset(&stop, SIGTSTP);
	signal(SIGTSTP, SIG_DFL);
	raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &stop, NULL);
	signal(SIGTSTP, pause_here);
	set_raw();
	if (size_fd >= 0)
		latch_set(size_fd);
	errno = saved;
}

bool terminal_raw(void)
{
	static const int DEADLY[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGSEGV, SIGABRT };

	if (tcgetattr(STDIN_FILENO, &before) < 0)
		return false;
	atexit(terminal_restore);
	for (size_t i = 0; i < ARRAY_SIZE(DEADLY); i++)
		signal(DEADLY[i], die);
	signal(SIGTSTP, pause_here);
	set_raw();
	return true;
}

void terminal_size(uint16_t *rows, uint16_t *cols)
{
	struct winsize size;

	*rows = 24;
	*cols = 80;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || !size.ws_row || !size.ws_col)
		return;
	*rows = size.ws_row;
	*cols = size.ws_col;
}

static void note_size(int number)
{
	int saved = errno;
	(void)number;

	latch_set(size_fd);
	errno = saved;
}

int terminal_watch_size(void)
{
	struct sigaction action = { .sa_handler = note_size, .sa_flags = SA_RESTART };

	if (size_fd < 0)
		size_fd = latch_new(NULL);
	if (size_fd >= 0)
		sigaction(SIGWINCH, &action, NULL);
	return size_fd;
}
