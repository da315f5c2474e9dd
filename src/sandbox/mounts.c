/*
 * The file tree of a sandbox, put together from nothing:
 *
 *   /usr, /bin, /lib*        of the host, read-only; root of the place gets a layer of its own over
 *                            them
 *   /etc                     synthesised
 *   /workspace, /home,       of the place's own directory, or of one tmpfs
 *   /tmp, /var/tmp
 *   /dev, /proc              new instances; of the host only six devices that hold no state
 *
 * or an unpacked root under a layer of its own, with the last two groups over it. What is not named
 * here is not there: homes, /root, /var, /run with its sockets, /sys. Host paths are looked at only
 * by descriptors that were opened before the tree was left, and nothing of what the payload could
 * have written is ever followed: every step to a mount point is one directory, no link.
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/fault.h"
#include "base/fd.h"
#include "sandbox/mount_calls.h"

#define DEV_SIZE "64m"
#define ROOT_SIZE "4m"

static const char *const SYSTEM[] = { "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32" };
static const char *const DEVICES[] = { "null", "zero", "full", "random", "urandom", "tty" };
/* Of the kernel, not of the place: state of other users, addresses, buttons, how it was started. */
static const char *const MASKED[] = { "kcore",         "keys",     "timer_list",    "sched_debug",
				      "latency_stats", "kallsyms", "sysrq-trigger", "cmdline" };

/* What the place writes, by name in its directory and in the tree. */
struct area {
	const char *name;
	const char *target; /* NULL: the user's home */
	mode_t mode;
};
static const struct area AREAS[] = {
	{ "workspace", SANDBOX_WORKSPACE, 0755 },
	{ "home", NULL, 0700 },
	{ "tmp", "/tmp", 01777 },
	{ "vartmp", "/var/tmp", 01777 },
};

/*
 * The order of what is handed over: system directories, /etc or the root, files, the workspace,
 * mounts.
 */
struct taker {
	struct tree_set *trees;
	size_t next;
};

static int take(struct taker *t)
{
	if (t->next >= t->trees->count)
		return -1;
	return steal_fd(&t->trees->fd[t->next++]);
}

void tree_set_clear(struct tree_set *trees)
{
	for (size_t i = 0; i < trees->count; i++)
		close_fdp(&trees->fd[i]);
	trees->count = 0;
}

unsigned system_directories(void)
{
	unsigned found = 0;
	struct stat st;

	for (unsigned i = 0; i < ARRAY_SIZE(SYSTEM); i++) {
		char path[16];

		snprintf(path, sizeof(path), "/%s", SYSTEM[i]);
		if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
			found |= 1u << i;
	}
	return found;
}

/* A layer over the system is of use only to a payload that owns it. */
static bool is_layered(const struct sandbox_birth *b)
{
	return b->base != 0 && b->spec->uid == 0;
}

/* ---- outside ---- */

static int add_tree(struct tree_set *out, int fd, uint64_t attributes, int userns_fd,
		    struct error *err)
{
	bool alone = userns_fd < 0;

	if (fd < 0)
		return error_errno(err, errno, "opening what is to be mounted");
	out->fd[out->count++] = fd;
	if (tree_change(fd, attributes, userns_fd, alone) == 0)
		return 0;
	/* A file system that cannot translate ids is shown as somebody else's. */
	if (userns_fd >= 0 && errno == EINVAL && tree_change(fd, attributes, -1, 0) == 0)
		return 0;
	return error_errno(err, errno, "changing what is to be mounted");
}

/*
 * A descriptor from before the clone is of the parent's mounts, which cannot be copied into ours.
 * The same thing is opened again where we are; what is not the very same is not taken.
 */
static int open_again(int fd)
{
	char link[64], path[PATH_BOUND + 1];
	struct stat was, is;
	ssize_t n;
	int again;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0 || fstat(fd, &was) < 0)
		return -1;
	path[n] = 0;
	again = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (again >= 0 &&
	    (fstat(again, &is) < 0 || is.st_dev != was.st_dev || is.st_ino != was.st_ino)) {
		close(again);
		errno = ESTALE;
		return -1;
	}
	return again;
}

static int clone_given(int fd, int userns_fd)
{
	_cleanup_close_ int again = -1;

	if (userns_fd >= 0)
		return tree_clone(fd, "", 0);
	again = open_again(fd);
	return again < 0 ? -1 : tree_clone(again, "", 1);
}

static int open_mount(const struct sandbox_birth *b, const struct sandbox_mount *m, int userns_fd,
		      struct tree_set *out, struct error *err)
{
	uint64_t attributes = ATTR_NOSUID | ATTR_NODEV | (m->writable ? 0 : ATTR_RDONLY);
	_cleanup_close_ int owner = -1;

	if (m->writable && userns_fd >= 0) {
		owner = owner_userns(m->owner, m->group, b->base + b->spec->uid, err);
		if (owner < 0)
			return -1;
		userns_fd = owner;
	}
	return add_tree(out, clone_given(m->source_fd, userns_fd), attributes, userns_fd, err);
}

static int open_system(const struct sandbox_birth *b, int userns_fd, struct tree_set *out,
		       struct error *err)
{
	/* No set-user-id program of the host works inside, and no device node it may have. */
	uint64_t attributes =
		FENCE_OFF("sandbox.wall.mount_flags") ? 0 : ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV;
	char path[16];

	if (b->spec->root_fd >= 0)
		return add_tree(out, clone_given(b->spec->root_fd, userns_fd), attributes,
				userns_fd, err);
	for (unsigned i = 0; i < ARRAY_SIZE(SYSTEM); i++) {
		snprintf(path, sizeof(path), "/%s", SYSTEM[i]);
		if ((b->system & 1u << i) &&
		    add_tree(out, tree_clone(AT_FDCWD, path, userns_fd < 0), attributes, userns_fd,
			     err) < 0)
			return -1;
	}
	return add_tree(out,
			FENCE_OFF("sandbox.wall.etc") ? tree_clone(AT_FDCWD, "/etc", userns_fd < 0)
						      : clone_given(b->etc_fd, userns_fd),
			attributes | ATTR_NOEXEC, userns_fd, err);
}

static int open_workspace(const struct sandbox_birth *b, int userns_fd, struct tree_set *out,
			  struct error *err)
{
	const struct sandbox_workspace *w = &b->spec->workspace;
	int fd;

	if (w->source_fd < 0)
		return 0;
	fd = workspace_tree(b, userns_fd, clone_given(w->source_fd, userns_fd), err);
	if (fd < 0)
		return -1;
	out->fd[out->count++] = fd;
	return 0;
}

int trees_open(const struct sandbox_birth *b, int userns_fd, struct tree_set *out,
	       struct error *err)
{
	if (open_system(b, userns_fd, out, err) < 0)
		return -1;
	/* It belongs to the range already. */
	if (b->files_fd >= 0 && add_tree(out, clone_given(b->files_fd, userns_fd),
					 ATTR_NOSUID | ATTR_NODEV, -1, err) < 0)
		return -1;
	if (open_workspace(b, userns_fd, out, err) < 0)
		return -1;
	for (size_t i = 0; i < b->spec->mount_count; i++)
		if (open_mount(b, &b->spec->mounts[i], userns_fd, out, err) < 0)
			return -1;
	return 0;
}

/* ---- inside ---- */

struct builder {
	const struct sandbox_birth *b;
	int stage; /* a tmpfs that holds the parts while they are put together */
	int root;  /* what becomes "/" */
	int files;
	struct taker taker;
};

static void builder_clear(struct builder *x)
{
	close_fdp(&x->stage);
	close_fdp(&x->root);
	close_fdp(&x->files);
}

/* One directory deeper, made if need be; a link or a file in the way is an error. */
static int step(int dir, const char *name)
{
	int fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 || errno != ENOENT)
		return fd;
	if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
		return -1;
	return openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int step_file(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);

	if (fd >= 0 || errno != EEXIST)
		return fd;
	return openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

/*
 * The mount point at a path of the new root. Stops: a root or an earlier mount that has a link
 * where a mount is to go, so that it lands on the host or over another wall (CVE-2019-19921,
 * 2025-31133).
 */
static int reach(const struct builder *x, const char *path, bool is_dir)
{
	_cleanup_free_ char *copy = xstrdup(path + 1);
	int fd = fcntl(x->root, F_DUPFD_CLOEXEC, 3);
	char *rest = copy, *name;

	while (fd >= 0 && (name = strsep(&rest, "/"))) {
		int next = rest || is_dir ? step(fd, name) : step_file(fd, name);

		close(fd);
		fd = next;
	}
	return fd;
}

static int put(const struct builder *x, int tree, const char *path, bool is_dir, struct error *err)
{
	_cleanup_close_ int fd = tree, target = -1;

	if (fd < 0)
		return error_errno(err, errno, "making what belongs at %s", path);
	target = reach(x, path, is_dir);
	if (target < 0)
		return error_errno(err, errno, "making room for %s", path);
	if (tree_attach(fd, target, "") < 0)
		return error_errno(err, errno, "mounting %s", path);
	return 0;
}

static int make_stage(struct builder *x, struct error *err)
{
	const struct fs_option options[] = { { "mode", "0755" }, { "size", "64k" }, { 0 } };

	/* Stops: a mount made here that appears on the host, and a host mount that appears here. */
	if (tree_make_private(AT_FDCWD, "/") < 0)
		return error_errno(err, errno, "making mounts private");
	x->stage = fs_make("tmpfs", options, ATTR_NOSUID | ATTR_NODEV);
	/* Over a directory that every host has; in a namespace that nobody else sees. */
	if (x->stage < 0 || tree_attach(x->stage, AT_FDCWD, "/usr") < 0)
		return error_errno(err, errno, "making a stage");
	return 0;
}

static int make_files(struct builder *x, struct error *err)
{
	const struct sandbox_spec *spec = x->b->spec;
	char size[32];
	const struct fs_option options[] = { { "mode", "0755" }, { "size", size }, { 0 } };

	/* Without a limit of its own a tmpfs takes what the memory limit allows, at most half. */
	if (spec->disk_bytes && !FENCE_OFF("sandbox.wall.disk"))
		snprintf(size, sizeof(size), "%llu", (unsigned long long)spec->disk_bytes);
	else
		snprintf(size, sizeof(size), "50%%");
	x->files = x->b->files_fd >= 0 ? take(&x->taker)
				       : fs_make("tmpfs", options, ATTR_NOSUID | ATTR_NODEV);
	if (x->files < 0 || mkdirat(x->stage, "files", 0700) < 0 ||
	    tree_attach(x->files, x->stage, "files") < 0)
		return error_errno(err, errno, "mounting the place's own directory");
	return 0;
}

/*
 * A writable view: what is below stays as it is, what is written goes to the place's directory.
 * Layers are named relative to the stage, where nothing but ours is.
 */
static int make_layer(struct builder *x, int lower, const char *name, struct error *err)
{
	char below[64], upper[64], work[64];
	_cleanup_close_ int lower_fd = lower;
	int fd = -1;
	const struct fs_option options[] = { { "lowerdir", below }, { "upperdir", upper },
					     { "workdir", work },   { "userxattr", NULL },
					     { "source", "berth" }, { 0 } };

	snprintf(below, sizeof(below), "lower-%s", name);
	snprintf(upper, sizeof(upper), "files/over-%s", name);
	snprintf(work, sizeof(work), "files/work-%s", name);
	if (mkdirat(x->stage, below, 0700) < 0 || tree_attach(lower_fd, x->stage, below) < 0 ||
	    (mkdirat(x->stage, upper, 0755) < 0 && errno != EEXIST) ||
	    (mkdirat(x->stage, work, 0700) < 0 && errno != EEXIST) || fchdir(x->stage) < 0)
		return error_errno(err, errno, "preparing a layer over /%s", name);
	fd = fs_make("overlay", options, ATTR_NOSUID | ATTR_NODEV);
	if (fd < 0)
		return error_errno(err, errno, "laying over /%s", name);
	return fd;
}

static int begin_root(struct builder *x, struct error *err)
{
	const struct fs_option options[] = { { "mode", "0755" }, { "size", ROOT_SIZE }, { 0 } };

	if (x->b->spec->root_fd >= 0) {
		/* Its files come after it in the order, and its layer needs them. */
		_cleanup_close_ int lower = take(&x->taker), upper = -1;

		if (make_files(x, err) < 0)
			return -1;
		upper = step(x->files, "over-root");
		if (upper < 0)
			return error_errno(err, errno, "preparing a layer over the root");
		if (root_user_add(x->b, lower, upper, err) < 0)
			return -1;
		x->root = make_layer(x, steal_fd(&lower), "root", err);
		if (x->root < 0)
			return -1;
	} else {
		x->root = fs_make("tmpfs", options, ATTR_NOSUID | ATTR_NODEV);
	}
	if (x->root < 0 || mkdirat(x->stage, "root", 0700) < 0 ||
	    tree_attach(x->root, x->stage, "root") < 0)
		return error_errno(err, errno, "making the root");
	return 0;
}

static int link_as_host(struct builder *x, const char *name, struct error *err)
{
	char path[16], target[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/%s", name);
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return 0;
	target[n] = 0;
	return symlinkat(target, x->root, name) < 0 ? error_errno(err, errno, "linking %s", path)
						    : 0;
}

static int put_system(struct builder *x, uint64_t *walls, struct error *err)
{
	int taken[ARRAY_SIZE(SYSTEM) + 1];
	size_t count = 0;

	if (x->b->spec->root_fd >= 0)
		return 0;
	for (unsigned i = 0; i < ARRAY_SIZE(SYSTEM); i++)
		if (x->b->system & 1u << i)
			taken[count++] = take(&x->taker);
	taken[count++] = take(&x->taker);
	if (make_files(x, err) < 0)
		return -1;
	count = 0;
	for (unsigned i = 0; i <= ARRAY_SIZE(SYSTEM); i++) {
		const char *name = i < ARRAY_SIZE(SYSTEM) ? SYSTEM[i] : "etc";
		char path[16];
		int tree;

		if (i < ARRAY_SIZE(SYSTEM) && !(x->b->system & 1u << i)) {
			if (link_as_host(x, name, err) < 0)
				return -1;
			continue;
		}
		snprintf(path, sizeof(path), "/%s", name);
		tree = taken[count++];
		if (is_layered(x->b))
			tree = make_layer(x, tree, name, err);
		if (tree < 0 || put(x, tree, path, true, err) < 0)
			return -1;
	}
	if (!is_layered(x->b))
		*walls |= WALL_BIT(WALL_SYSTEM_READ_ONLY);
	return 0;
}

/* What the place writes over a directory of the host is in a layer of its own. */
static int make_workspace_layer(struct builder *x, int tree, struct error *err)
{
	const struct sandbox_workspace *w = &x->b->spec->workspace;
	_cleanup_close_ int lower = tree, upper = -1;
	/*
	 * Without redirects and the like the layer says all there is to say ("off" would follow
	 * them where the kernel was built to). `volatile` leaves out syncing the host's whole file
	 * system when it is unmounted; a layer in a store may be mounted once more and cannot have
	 * that.
	 */
	const struct fs_option options[] = {
		{ "lowerdir", "lower-workspace" },
		{ "upperdir", "files/" SANDBOX_UPPER },
		{ "workdir", "files/" SANDBOX_WORK },
		{ "userxattr", NULL },
		{ "redirect_dir", "nofollow" },
		{ "metacopy", "off" },
		{ "index", "off" },
		{ "source", "berth" },
		{ x->b->spec->store ? NULL : "volatile", NULL },
		{ 0 },
	};
	int fd;

	if (lower < 0 || mkdirat(x->stage, "lower-workspace", 0700) < 0 ||
	    tree_attach(lower, x->stage, "lower-workspace") < 0 ||
	    mkdirat(x->files, SANDBOX_UPPER, 0700) < 0 ||
	    mkdirat(x->files, SANDBOX_WORK, 0700) < 0 || fchdir(x->stage) < 0)
		return error_errno(err, errno, "preparing a layer over the workspace");
	upper = openat(x->files, SANDBOX_UPPER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (upper < 0)
		return error_errno(err, errno, "opening the layer over the workspace");
	if (workspace_prepare_upper(x->b, upper, lower, err) < 0)
		return -1;
	fd = fs_make("overlay", options, ATTR_NOSUID | ATTR_NODEV);
	if (fd < 0)
		return error_set(
			err, ERR_UNPROCESSABLE,
			"no layer can be laid over %.200s (%s): its file system or that of "
			"the data directory cannot, or there are mounts in it; copy it "
			"instead",
			w->path, strerror(errno));
	return fd;
}

/* Of the host, as it is: its unix sockets are not the place's. */
static int put_shared(struct builder *x, int tree, const char *path, bool is_dir, struct error *err)
{
	_cleanup_close_ int dir = is_dir && tree >= 0 ? fcntl(tree, F_DUPFD_CLOEXEC, 3) : -1;

	if (put(x, tree, path, is_dir, err) < 0)
		return -1;
	return dir < 0 ? 0 : sockets_cover(x->b, x->stage, dir, path, err);
}

static int put_workspace(struct builder *x, struct error *err)
{
	int tree = take(&x->taker);

	/* Through a layer no socket is reached. */
	if (!x->b->spec->workspace.overlay)
		return put_shared(x, tree, SANDBOX_WORKSPACE, true, err);
	tree = make_workspace_layer(x, tree, err);
	return tree < 0 ? -1 : put(x, tree, SANDBOX_WORKSPACE, true, err);
}

static int put_area(struct builder *x, const struct area *a, const char *target, struct error *err)
{
	_cleanup_close_ int fd = -1;
	uid_t uid = x->b->spec->uid;

	if (mkdirat(x->files, a->name, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "making %s", a->name);
	fd = openat(x->files, a->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || (x->b->base && fchown(fd, uid, uid) < 0) || fchmod(fd, a->mode) < 0)
		return error_errno(err, errno, "giving %s to its user", a->name);
	return put(x, tree_clone(fd, "", 0), target, true, err);
}

static int put_areas(struct builder *x, struct error *err)
{
	const struct sandbox_spec *spec = x->b->spec;
	char home[64];

	if (spec->uid == 0)
		snprintf(home, sizeof(home), "/root");
	else
		snprintf(home, sizeof(home), "/home/%s", spec->user);
	for (size_t i = 0; i < ARRAY_SIZE(AREAS); i++) {
		const char *target = AREAS[i].target ? AREAS[i].target : home;
		bool given =
			spec->workspace.source_fd >= 0 && strcmp(target, SANDBOX_WORKSPACE) == 0;

		if ((given ? put_workspace(x, err) : put_area(x, &AREAS[i], target, err)) < 0)
			return -1;
	}
	return 0;
}

static int put_devices(struct builder *x, struct error *err)
{
	const struct fs_option memory[] = { { "mode", "0755" }, { "size", DEV_SIZE }, { 0 } };
	const struct fs_option terminals[] = { { "newinstance", NULL },
					       { "ptmxmode", "0666" },
					       { "mode", "0620" },
					       { "gid", "5" },
					       { 0 } };
	const struct fs_option own[] = {
		{ "newinstance", NULL }, { "ptmxmode", "0666" }, { "mode", "0620" }, { 0 }
	};
	static const struct {
		const char *name, *target;
	} links[] = { { "fd", "/proc/self/fd" },
		      { "stdin", "/proc/self/fd/0" },
		      { "stdout", "/proc/self/fd/1" },
		      { "stderr", "/proc/self/fd/2" },
		      { "ptmx", "pts/ptmx" } };
	_cleanup_close_ int dev = -1;
	int fresh = fs_make("tmpfs", memory, ATTR_NOSUID | ATTR_NOEXEC);

	dev = fresh >= 0 ? fcntl(fresh, F_DUPFD_CLOEXEC, 3) : -1;
	/* A new one, not what a root brings: its entries could be links (CVE-2026-41579). */
	if (put(x, fresh, "/dev", true, err) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(DEVICES); i++) {
		char host[32], path[32];

		snprintf(host, sizeof(host), "/dev/%s", DEVICES[i]);
		snprintf(path, sizeof(path), "/dev/%s", DEVICES[i]);
		if (put(x, tree_clone(AT_FDCWD, host, 0), path, false, err) < 0)
			return -1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		if (symlinkat(links[i].target, dev, links[i].name) < 0)
			return error_errno(err, errno, "linking /dev/%s", links[i].name);
	if (mkdirat(dev, "shm", 0777) < 0 || fchmodat(dev, "shm", 01777, 0) < 0)
		return error_errno(err, errno, "making /dev/shm");
	/* Its own terminals: the host's cannot be opened, read or typed into. */
	return put(x, fs_make("devpts", x->b->base ? terminals : own, ATTR_NOSUID | ATTR_NOEXEC),
		   "/dev/pts", true, err);
}

/* Writing here would change the machine for everybody, whoever may. */
static int hold_read_only(int proc, const char *name, struct error *err)
{
	_cleanup_close_ int tree = tree_clone(proc, name, 0);

	if (tree < 0)
		return errno == ENOENT ? 0 : error_errno(err, errno, "/proc/%s", name);
	if (tree_change(tree, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC, -1, 0) < 0 ||
	    tree_attach(tree, proc, name) < 0)
		return error_errno(err, errno, "protecting /proc/%s", name);
	return 0;
}

static int put_proc(struct builder *x, uint64_t *walls, struct error *err)
{
	/* Others' processes are not listed: of the relay, another user, nothing is seen. */
	const struct fs_option options[] = {
		{ "hidepid", FENCE_OFF("sandbox.wall.hidepid") ? "0" : "2" }, { 0 }
	};
	_cleanup_close_ int proc = -1;
	/* An instance can be made only of a process namespace that is ours. */
	int fresh = FENCE_OFF("sandbox.wall.pid_ns")
			    ? tree_clone(AT_FDCWD, "/proc", 1)
			    : fs_make("proc", options, ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC);
	struct stat st;

	proc = fresh >= 0 ? fcntl(fresh, F_DUPFD_CLOEXEC, 3) : -1;
	if (put(x, fresh, "/proc", true, err) < 0)
		return -1;
	if (FENCE_OFF("sandbox.wall.proc_masked"))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(MASKED); i++) {
		_cleanup_close_ int null = -1;

		if (fstatat(proc, MASKED[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		null = tree_clone(x->root, "dev/null", 0);
		if (null < 0 || fstat(null, &st) < 0 || !S_ISCHR(st.st_mode) ||
		    tree_attach(null, proc, MASKED[i]) < 0)
			return error_errno(err, errno, "hiding /proc/%s", MASKED[i]);
	}
	if (hold_read_only(proc, "sys", err) < 0 || hold_read_only(proc, "irq", err) < 0 ||
	    hold_read_only(proc, "bus", err) < 0)
		return -1;
	*walls |= WALL_BIT(WALL_PROC_MASKED);
	return 0;
}

static int put_mounts(struct builder *x, struct error *err)
{
	const struct sandbox_spec *spec = x->b->spec;

	for (size_t i = 0; i < spec->mount_count; i++)
		if (put_shared(x, take(&x->taker), spec->mounts[i].target, spec->mounts[i].is_dir,
			       err) < 0)
			return -1;
	return 0;
}

/* From here on the host's tree is gone: no path and no ".." leads to it. */
static int leave_host(struct builder *x, struct error *err)
{
	if (fchdir(x->root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return error_errno(err, errno, "entering the new root");
	if (!FENCE_OFF("sandbox.wall.pivot") && umount2(".", MNT_DETACH) < 0)
		return error_errno(err, errno, "leaving the host's tree");
	/* Stops: a working directory that is still the host's (CVE-2024-21626). */
	if (chdir("/") < 0)
		return error_errno(err, errno, "entering the new root");
	return 0;
}

static int finish_root(struct builder *x, struct error *err)
{
	static const char *const more[] = { "/run", "/root", "/var/log", "/var/cache" };

	if (x->b->spec->root_fd >= 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
		_cleanup_close_ int fd = reach(x, more[i], true);

		if (fd < 0)
			return error_errno(err, errno, "making %s", more[i]);
	}
	if (is_layered(x->b) || FENCE_OFF("sandbox.wall.mount_flags"))
		return 0;
	return tree_change(x->root, ATTR_RDONLY, -1, 0) < 0
		       ? error_errno(err, errno, "closing the root")
		       : 0;
}

int mounts_build(const struct sandbox_birth *b, struct tree_set *trees, uint64_t *walls,
		 struct error *err)
{
	_cleanup_(builder_clear) struct builder x = {
		.b = b, .stage = -1, .root = -1, .files = -1, .taker = { .trees = trees }
	};

	umask(022);
	if (make_stage(&x, err) < 0 || begin_root(&x, err) < 0 || put_system(&x, walls, err) < 0 ||
	    put_areas(&x, err) < 0 || put_devices(&x, err) < 0 || put_proc(&x, walls, err) < 0 ||
	    put_mounts(&x, err) < 0 || finish_root(&x, err) < 0 || leave_host(&x, err) < 0)
		return -1;
	if (b->files_fd < 0 && b->spec->disk_bytes)
		*walls |= WALL_BIT(WALL_DISK);
	umask(077);
	return 0;
}
