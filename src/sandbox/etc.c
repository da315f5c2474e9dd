/*
 * A synthesised /etc. The host's own has password hashes, keys, tokens of package managers, mail
 * and mount tables; a sandbox gets a short list of names that programs need to work, of these only
 * what every user of the host may read, and accounts that exist nowhere else.
 *
 * Made once for each user name and network and mounted read-only into all that want the same, also
 * by later keepers: what it was made of is in its name. Places go on having the one they began with
 * when the host's has changed.
 */
#include "sandbox/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/id.h"
#include "base/path.h"
#include "base/sha256.h"
#include "base/text.h"

#define ETC_NAME "etc"
#define DEPTH_MAX 8
#define FILE_MAX ((off_t)16 << 20)

/* Taken from the host; one that ends in '*' is a beginning. A slash: the directory is made first.
 */
static const char *const NAMES[] = {
	"alternatives",
	"bash.bashrc",
	"ca-certificates.conf",
	"debian_version",
	"ethertypes",
	"fonts",
	"gai.conf",
	"host.conf",
	"inputrc",
	"java-*",
	"ld-musl-*",
	"ld.so.cache",
	"ld.so.conf",
	"ld.so.conf.d",
	"locale.alias",
	"localtime",
	"magic",
	"magic.mime",
	"mime.types",
	"netconfig",
	"networks",
	"os-release",
	"perl",
	"profile",
	"protocols",
	"python2*",
	"python3*",
	"redhat-release",
	"alpine-release",
	"rpc",
	"services",
	"shells",
	"ssl/certs",
	"ssl/openssl.cnf",
	"pki/tls/certs",
	"pki/ca-trust/extracted",
	"crypto-policies",
	"terminfo",
	"timezone",
	"xml",
};

/*
 * Where the entries go. With a digest they go nowhere: it gets what tells whether they have
 * changed.
 */
struct taking {
	struct sha256 *digest;
};

static void note(const struct taking *t, const char *name, const struct stat *st)
{
	uint64_t facts[] = { st->st_mode, (uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec,
			     (uint64_t)st->st_mtim.tv_nsec, st->st_ino };

	sha256_update(t->digest, name, strlen(name) + 1);
	sha256_update(t->digest, facts, sizeof(facts));
}

static int copy_file(int from, int to, const char *name, const struct stat *st, struct error *err)
{
	_cleanup_close_ int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	_cleanup_close_ int out =
		openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	off_t offset = 0;

	if (in < 0 || out < 0)
		return error_errno(err, errno, "copying %s of /etc", name);
	while (offset < st->st_size) {
		ssize_t n = sendfile(out, in, &offset, (size_t)(st->st_size - offset));

		if (n <= 0)
			return error_errno(err, n < 0 ? errno : EIO, "copying %s of /etc", name);
	}
	return fchmod(out, (st->st_mode & 0111) ? 0755 : 0644) < 0
		       ? error_errno(err, errno, "copying %s of /etc", name)
		       : 0;
}

static int take_entry(const struct taking *t, int from, int to, const char *name, int depth,
		      struct error *err);

/* Made if it is not there; -1 in *out where nothing is made. */
static int enter_made(const struct taking *t, int to, const char *name, int *out, struct error *err)
{
	if (t->digest)
		return 0;
	if ((mkdirat(to, name, 0755) < 0 && errno != EEXIST) || dir_open(to, name, out, err) < 0 ||
	    fchmod(*out, 0755) < 0)
		return error_errno(err, errno, "making %s of /etc", name);
	return 0;
}

static int take_directory(const struct taking *t, int from, int to, const char *name, int depth,
			  struct error *err)
{
	int in = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int out = -1;
	DIR *dir = in >= 0 ? fdopendir(in) : NULL;
	struct dirent *entry;
	int r;

	if (!dir)
		return 0;
	r = enter_made(t, to, name, &out, err);
	while (r == 0 && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = take_entry(t, in, out, entry->d_name, depth + 1, err);
	closedir(dir);
	return r;
}

/* What only some may read is left out: it was not meant for everybody. */
static int take_entry(const struct taking *t, int from, int to, const char *name, int depth,
		      struct error *err)
{
	char target[PATH_BOUND + 1];
	struct stat st;
	ssize_t n;

	if (depth > DEPTH_MAX || fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (t->digest)
		note(t, name, &st);
	if (t->digest && !S_ISDIR(st.st_mode))
		return 0;
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(from, name, target, sizeof(target) - 1);
		if (n <= 0)
			return 0;
		target[n] = 0;
		return symlinkat(target, to, name) < 0 && errno != EEXIST
			       ? error_errno(err, errno, "linking %s of /etc", name)
			       : 0;
	}
	if (S_ISDIR(st.st_mode))
		return (st.st_mode & 0005) == 0005 ? take_directory(t, from, to, name, depth, err)
						   : 0;
	if (!S_ISREG(st.st_mode) || !(st.st_mode & 0004) || st.st_size > FILE_MAX)
		return 0;
	return copy_file(from, to, name, &st, err);
}

static int take_matching(const struct taking *t, int host, int to, const char *pattern,
			 struct error *err)
{
	size_t len = strlen(pattern) - 1;
	int fd = openat(host, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;
	int r = 0;

	while (dir && r == 0 && (entry = readdir(dir)))
		if (strncmp(entry->d_name, pattern, len) == 0)
			r = take_entry(t, host, to, entry->d_name, 0, err);
	if (dir)
		closedir(dir);
	return r;
}

/* "ssl/certs": only that of ssl, not its private keys. */
static int take_nested(const struct taking *t, int host, int to, const char *path,
		       struct error *err)
{
	const char *slash = strchr(path, '/');
	_cleanup_free_ char *first = xstrndup(path, (size_t)(slash - path));
	_cleanup_close_ int from =
		openat(host, first, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int below = -1;

	if (from < 0)
		return 0;
	if (enter_made(t, to, first, &below, err) < 0)
		return -1;
	return strchr(slash + 1, '/') ? take_nested(t, from, below, slash + 1, err)
				      : take_entry(t, from, below, slash + 1, 0, err);
}

static int take_named(const struct taking *t, int to, struct error *err)
{
	_cleanup_close_ int host = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = 0;

	if (host < 0)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(NAMES) && r == 0; i++) {
		const char *name = NAMES[i];

		if (name[strlen(name) - 1] == '*')
			r = take_matching(t, host, to, name, err);
		else if (strchr(name, '/'))
			r = take_nested(t, host, to, name, err);
		else
			r = take_entry(t, host, to, name, 0, err);
	}
	return r;
}

static int write_text(int to, const char *name, const char *text, struct error *err)
{
	_cleanup_close_ int fd =
		openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd < 0 || fchmod(fd, 0644) < 0)
		return error_errno(err, errno, "writing %s of /etc", name);
	return fd_write_all(fd, text, strlen(text), err);
}

static int write_accounts(int to, const char *user, uid_t uid, struct error *err)
{
	_cleanup_buf_ struct buf passwd = { 0 }, group = { 0 };

	buf_printf(&passwd, "root:x:0:0:root:/root:/bin/bash\n");
	buf_printf(&group, "root:x:0:\ntty:x:5:\n");
	if (uid != 0) {
		buf_printf(&passwd, "%s:x:%u:%u:%s:/home/%s:/bin/bash\n", user, uid, uid, user,
			   user);
		buf_printf(&group, "%s:x:%u:\n", user, uid);
	}
	buf_printf(&passwd, "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
	buf_printf(&group, "nogroup:x:65534:\n");
	return write_text(to, "passwd", buf_str(&passwd), err) < 0
		       ? -1
		       : write_text(to, "group", buf_str(&group), err);
}

static int fill(int to, const char *user, uid_t uid, bool host_network, struct error *err)
{
	_cleanup_buf_ struct buf resolv = { 0 };

	if (take_named(&(struct taking){ 0 }, to, err) < 0 ||
	    write_accounts(to, user, uid, err) < 0 ||
	    write_text(to, "hostname", SANDBOX_HOSTNAME "\n", err) < 0 ||
	    write_text(to, "hosts",
		       "127.0.0.1 localhost " SANDBOX_HOSTNAME "\n::1 localhost ip6-localhost\n",
		       err) < 0 ||
	    write_text(to, "nsswitch.conf",
		       "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
		       "networks: files\nprotocols: files\nservices: files\n",
		       err) < 0)
		return -1;
	if (symlinkat("/proc/self/mounts", to, "mtab") < 0)
		return error_errno(err, errno, "linking mtab of /etc");
	/* Without a network there is no resolver, and whose the host asks is not to be told. */
	if (!host_network || file_read(AT_FDCWD, "/etc/resolv.conf", &resolv, 65536, NULL) < 0)
		return 0;
	return write_text(to, "resolv.conf", buf_str(&resolv), err);
}

static int open_made(int etc_fd, const char *name, int *fd)
{
	*fd = openat(etc_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return *fd < 0 ? -1 : 0;
}

void etc_tag(char out[ETC_TAG_SIZE])
{
	struct sha256 digest;
	struct taking t = { &digest };
	uint8_t sum[SHA256_SIZE];
	char boot[ID_SIZE];
	struct stat st;

	sha256_init(&digest);
	sha256_update(&digest, BERTH_VERSION, sizeof(BERTH_VERSION));
	/* It is not synced: after a machine went down it may have its name and not all of its
	 * files. */
	boot_id(boot);
	sha256_update(&digest, boot, strlen(boot));
	for (size_t i = 0; i < ARRAY_SIZE(NAMES); i++)
		sha256_update(&digest, NAMES[i], strlen(NAMES[i]) + 1);
	take_named(&t, -1, NULL);
	if (stat("/etc/resolv.conf", &st) == 0)
		note(&t, "resolv.conf", &st);
	sha256_final(&digest, sum);
	hex_encode(out, sum, (ETC_TAG_SIZE - 1) / 2);
}

/* Under its name it is whole. */
static int make_whole(int etc_fd, const char *fresh, const char *name, const char *user, uid_t uid,
		      bool host_network, struct error *err)
{
	_cleanup_close_ int fd = -1;

	if (mkdirat(etc_fd, fresh, 0755) < 0 || open_made(etc_fd, fresh, &fd) < 0 ||
	    fchmod(fd, 0755) < 0)
		return error_errno(err, errno, "making its directory");
	if (fill(fd, user, uid, host_network, err) < 0)
		return -1;
	return renameat(etc_fd, fresh, etc_fd, name) < 0 ? error_errno(err, errno, "naming it") : 0;
}

int etc_open(int dir_fd, const char *tag, const char *user, uid_t uid, bool host_network, int *out,
	     struct error *err)
{
	_cleanup_free_ char *name =
		xasprintf("%s-%s-%s", user, host_network ? "host" : "none", tag);
	_cleanup_free_ char *fresh = xasprintf(".%s", name);
	_cleanup_close_ int etc_fd = -1;

	if (dir_make(dir_fd, ETC_NAME, 0700, err) < 0 ||
	    dir_open(dir_fd, ETC_NAME, &etc_fd, err) < 0)
		return -1;
	if (open_made(etc_fd, name, out) == 0)
		return 0;
	if (dir_remove_tree(etc_fd, fresh, err) < 0)
		return -1;
	if (make_whole(etc_fd, fresh, name, user, uid, host_network, err) < 0) {
		/* On a disk that is full, half of one would be in the way of whoever makes room. */
		dir_remove_tree(etc_fd, fresh, NULL);
		return error_wrap(err, "making an /etc for sandboxes");
	}
	return open_made(etc_fd, name, out) < 0
		       ? error_errno(err, errno, "opening the /etc for sandboxes")
		       : 0;
}

void etc_forget(int dir_fd, const char *tag)
{
	int fd = openat(dir_fd, ETC_NAME, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		const char *dash = strrchr(entry->d_name, '-');
		bool is_now = entry->d_name[0] != '.' && dash && strcmp(dash + 1, tag) == 0;

		if (!is_now && strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			dir_remove_tree(dirfd(dir), entry->d_name, NULL);
	}
	if (dir)
		closedir(dir);
}
