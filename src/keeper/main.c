/*
 * berth-keeper --dir DIR [--relay PROGRAM] [--idle-seconds N] [--uid-base N]
 *
 * A server of the release before this one also gives --allow-path DIR, any number of times: it says
 * nothing about paths in its requests.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "keeper/keeper.h"

#define IDLE_DEFAULT_SECONDS 30
#define LOCK_NAME "keeper.lock"
#define PLACES_NAME "places"
#define EXIT_LOCKED 3
/* Above what systemd gives to containers, below where ids become negative numbers. */
#define UID_BASE_DEFAULT 0x70000000

struct options {
	const char *dir;
	const char *relay;
	int64_t idle_seconds;
	int64_t uid_base;
	char **allowed;
};

static int read_options(int argc, char **argv, struct options *o)
{
	static const struct option known[] = {
		{ "dir", required_argument, NULL, 'd' },
		{ "relay", required_argument, NULL, 'r' },
		{ "idle-seconds", required_argument, NULL, 'i' },
		{ "uid-base", required_argument, NULL, 'u' },
		{ "allow-path", required_argument, NULL, 'p' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 },
	};
	int c;

	*o = (struct options){ .idle_seconds = IDLE_DEFAULT_SECONDS, .uid_base = UID_BASE_DEFAULT };
	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (c) {
		case 'd':
			o->dir = optarg;
			break;
		case 'r':
			o->relay = optarg;
			break;
		case 'i':
			if (!parse_i64(optarg, 0, 365 * 24 * 3600, &o->idle_seconds))
				return -1;
			break;
		case 'u':
			if (!parse_i64(optarg, 65536, UINT32_MAX, &o->uid_base))
				return -1;
			break;
		case 'p':
			strv_push(&o->allowed, xstrdup(optarg));
			break;
		case 'V':
			printf("berth-keeper %s, protocol %d\n", BERTH_VERSION, WIRE_VERSION);
			exit(0);
		default:
			return -1;
		}
	}
	return o->dir && o->dir[0] == '/' && optind == argc ? 0 : -1;
}

/* Beside this program, whatever path it was started by. */
static char *relay_beside(void)
{
	char self[PATH_BOUND + 1];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n <= 0)
		return xstrdup("berth-relay");
	self[n] = 0;
	slash = strrchr(self, '/');
	return slash ? xasprintf("%.*s/berth-relay", (int)(slash - self), self)
		     : xstrdup("berth-relay");
}

static int open_directory(struct keeper *keeper, const char *dir, struct error *err)
{
	struct stat st;
	int lock;

	if (dir_make(AT_FDCWD, dir, 0700, err) < 0 ||
	    dir_open(AT_FDCWD, dir, &keeper->dir_fd, err) < 0)
		return -1;
	/* Keys and control sockets of places are in here. */
	if (fstat(keeper->dir_fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return error_set(err, ERR_FORBIDDEN, "%s must be ours alone (mode 0700)", dir);
	keeper->dir = xstrdup(dir);
	lock = openat(keeper->dir_fd, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock < 0)
		return error_errno(err, errno, "opening the lock");
	if (flock(lock, LOCK_EX | LOCK_NB) < 0)
		return error_set(err, ERR_LOCKED, "a keeper runs in %s already", dir);
	keeper->lock_fd = lock;
	if (dir_make(keeper->dir_fd, PLACES_NAME, 0700, err) < 0)
		return -1;
	return dir_open(keeper->dir_fd, PLACES_NAME, &keeper->places_fd, err);
}

static void signals_ready(struct watch *watch, uint32_t events)
{
	struct keeper *keeper = container_of(watch, struct keeper, signals);
	struct signalfd_siginfo info;
	int status;
	pid_t pid;

	(void)events;
	if (read(watch->fd, &info, sizeof(info)) <= 0)
		return;
	/* Relays live on without their keeper; the next one adopts them. */
	if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
		pool_stop(keeper);
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (!trash_reaped(keeper, pid))
			place_reaped(keeper, pid, status);
}

static int watch_signals(struct keeper *keeper, struct error *err)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_SETMASK, &set, NULL);
	sigdelset(&set, SIGHUP);
	sigdelset(&set, SIGPIPE);
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return error_errno(err, errno, "signalfd");
	keeper->signals.ready = signals_ready;
	return loop_watch(&keeper->loop, &keeper->signals, fd, EPOLLIN, err);
}

static void idle_due(struct timer *timer)
{
	struct keeper *keeper = container_of(timer, struct keeper, idle);

	log_info("no place, no client and nothing to remove: the keeper ends");
	keeper->loop.stop = true;
}

void keeper_check_idle(struct keeper *keeper)
{
	bool idle = !keeper->places && !keeper->clients && !keeper->trash;

	if (keeper->stopping && pool_may_stop(keeper))
		keeper->loop.stop = true;
	if (!idle)
		loop_disarm(&keeper->loop, &keeper->idle);
	else if (keeper->idle.at == 0)
		loop_arm(&keeper->loop, &keeper->idle, keeper->idle_ms);
}

static int keeper_start(struct keeper *keeper, const struct options *o, struct error *err)
{
	_cleanup_free_ char *relay = o->relay ? xstrdup(o->relay) : relay_beside();
	struct rlimit no_core = { 0, 0 };

	/* Keys of places pass through this memory. */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	setrlimit(RLIMIT_CORE, &no_core);
	umask(077);
	setsid();
	keeper->idle_ms = o->idle_seconds * 1000;
	keeper->idle.due = idle_due;
	keeper->started_ms = boottime_ms();
	if (open_directory(keeper, o->dir, err) < 0 ||
	    image_load(relay, &keeper->relay_image, err) < 0 || loop_init(&keeper->loop, err) < 0 ||
	    watch_signals(keeper, err) < 0)
		return -1;
	keeper->cgroup = cgroup_base_make(keeper->dir);
	keeper->policy.allowed = o->allowed;
	native_start_keeping(keeper, (uint32_t)o->uid_base);
	place_adopt_all(keeper);
	native_adopted(keeper);
	if (client_listen(keeper, err) < 0)
		return -1;
	keeper_check_idle(keeper);
	return 0;
}

int main(int argc, char **argv)
{
	static struct keeper keeper;
	_cleanup_error_ struct error err = { 0 };
	struct options options;

	if (read_options(argc, argv, &options) < 0) {
		fprintf(stderr,
			"usage: berth-keeper --dir /DIR [--relay PROGRAM] [--idle-seconds N] "
			"[--uid-base N]\n");
		return 2;
	}
	if (fault_init(getenv("BERTH_FAULT"), &err) < 0 ||
	    keeper_start(&keeper, &options, &err) < 0) {
		log_error("cannot start: %s", err.message);
		return err.code == ERR_LOCKED ? EXIT_LOCKED : 1;
	}
	if (loop_run(&keeper.loop, &err) < 0) {
		log_error("%s", err.message);
		return 1;
	}
	client_close_all(&keeper);
	if (!keeper.places) {
		unlinkat(keeper.dir_fd, KEEPER_SOCKET_NAME, 0);
		if (keeper.cgroup)
			rmdir(keeper.cgroup);
		limit_bases_remove(&keeper.limits);
		native_adopted(&keeper);
		trash_end(&keeper);
	}
	return 0;
}
