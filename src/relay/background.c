#include "relay/background.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>
#include "relay/exec.h"

int background_start(struct relay *relay, struct background *aside, int (*work)(void *), void *arg)
{
	pid_t pid = fork();

	if (pid < 0)
		return -1;
	if (pid == 0) {
		exec_leave_pipes(relay);
		_exit(work(arg) & 0xff);
	}
	aside->pid = pid;
	aside->next = relay->asides;
	relay->asides = aside;
	return 0;
}

bool background_reaped(struct relay *relay, pid_t pid, int status)
{
	for (struct background **p = &relay->asides; *p; p = &(*p)->next) {
		struct background *aside = *p;

		if (aside->pid != pid)
			continue;
		*p = aside->next;
		aside->done(aside, WIFEXITED(status) ? WEXITSTATUS(status) : EIO);
		return true;
	}
	return false;
}
