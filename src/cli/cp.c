/*
 * Files and directories between here and a leased place. Each file appears whole or not at all; a
 * directory does not.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/id.h"
#include "base/path.h"
#include "base/text.h"
#include "cli/api.h"
#include "cli/cli.h"

#define DEPTH_MAX 128
#define HOLE_MIN 4096

struct copy {
	struct cli *cli;
	struct api *api;
	char lease[ID_SIZE];
	int64_t generation; /* -1: unchecked */
	size_t files, skipped;
};

/* "LEASE:PATH": the path, and the lease's id into `lease`; NULL when it is a name here. */
static const char *remote_part(const char *word, char lease[ID_SIZE])
{
	_cleanup_free_ char *id = strlen(word) > ID_SIZE - 1 && word[ID_SIZE - 1] == ':'
					  ? xstrndup(word, ID_SIZE - 1)
					  : NULL;

	if (!id_is_valid(id))
		return NULL;
	id_copy(lease, id);
	return word + ID_SIZE;
}

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static char *parent_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		return xstrdup(".");
	return slash == path ? xstrdup("/") : xstrndup(path, (size_t)(slash - path));
}

static char *url_of(const struct copy *c, const char *what, const char *path, const char *more)
{
	_cleanup_free_ char *escaped = api_escape(c->api, path);
	_cleanup_buf_ struct buf url = { 0 };

	buf_printf(&url, "/api/environment-leases/%s/files%s?path=%s%s", c->lease, what, escaped,
		   more);
	if (c->generation >= 0)
		buf_printf(&url, "&generation=%lld", (long long)c->generation);
	return buf_steal(&url);
}

/* 1 and what is there, 0 when nothing is, -1. */
static int stat_there(const struct copy *c, const char *path, json_t **info, struct error *err)
{
	_cleanup_free_ char *url = url_of(c, "/stat", path, "");

	if (api_call(c->api, "GET", url, NULL, info, err) == 0)
		return 1;
	if (err->code != ERR_NOT_FOUND)
		return -1;
	error_clear(err);
	return 0;
}

static bool is_directory(const json_t *info)
{
	return str_equal(json_str(info, "type"), "directory");
}

static void skip(struct copy *c, const char *path, const char *what)
{
	fprintf(stderr, "berth: skipped %s: %s\n", path, what);
	c->skipped++;
}

/* ---- there ---- */

static ssize_t read_here(void *arg, char *buf, size_t max)
{
	ssize_t n;

	do
		n = read(*(int *)arg, buf, max);
	while (n < 0 && errno == EINTR);
	return n;
}

static int send_file(struct copy *c, int fd, const struct stat *st, const char *to,
		     struct error *err)
{
	char mode[24];
	_cleanup_free_ char *url = NULL;

	snprintf(mode, sizeof(mode), "&mode=%04o", (unsigned)st->st_mode & 0777);
	url = url_of(c, "", to, mode);

	const struct api_upload upload = { .method = "PUT",
					   .path = url,
					   .length = (int64_t)st->st_size,
					   .read = read_here,
					   .arg = &fd };

	if (api_upload(c->api, &upload, NULL, err) < 0)
		return error_wrap(err, "%s", to);
	c->files++;
	return 0;
}

static int make_there(struct copy *c, const char *path, mode_t mode, struct error *err)
{
	_cleanup_json_ json_t *body = json_object(), *info = NULL;
	_cleanup_buf_ struct buf url = { 0 };
	char text[8];
	int there = stat_there(c, path, &info, err);

	if (there < 0 || (there && is_directory(info)))
		return there < 0 ? -1 : 0;
	snprintf(text, sizeof(text), "%04o", (unsigned)mode & 0777);
	json_put_str(body, "path", path);
	json_put_str(body, "mode", text);
	json_put_bool(body, "parents", true);
	buf_printf(&url, "/api/environment-leases/%s/files/mkdir", c->lease);
	if (c->generation >= 0)
		buf_printf(&url, "?generation=%lld", (long long)c->generation);
	return api_call(c->api, "POST", buf_str(&url), body, NULL, err);
}

static int send_entry(struct copy *c, int dirfd, const char *name, const char *to, int depth,
		      struct error *err);

static int send_directory(struct copy *c, int fd, const struct stat *st, const char *to, int depth,
			  struct error *err)
{
	DIR *dir;
	struct dirent *entry;
	int r = make_there(c, to, st->st_mode, err);

	if (r < 0)
		return -1;
	if (depth == DEPTH_MAX)
		return error_set(err, ERR_BAD_PATH, "%s is nested too deeply", to);
	dir = fdopendir(dup(fd));
	if (!dir)
		return error_errno(err, errno, "cannot list %s", to);
	while (r == 0 && (entry = readdir(dir))) {
		_cleanup_free_ char *inside = NULL;

		if (streq(entry->d_name, ".") || streq(entry->d_name, ".."))
			continue;
		inside = path_join(to, entry->d_name);
		r = send_entry(c, fd, entry->d_name, inside, depth + 1, err);
	}
	closedir(dir);
	return r;
}

static int send_entry(struct copy *c, int dirfd, const char *name, const char *to, int depth,
		      struct error *err)
{
	/* Only what is named on the command line is followed when it is a link. */
	_cleanup_close_ int fd =
		openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (depth ? O_NOFOLLOW : 0));
	struct stat st;

	if (fd < 0 && errno == ELOOP && depth) {
		skip(c, to, "a symbolic link");
		return 0;
	}
	if (fd < 0 && depth && errno == ENXIO) {
		skip(c, to, "a socket");
		return 0;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "%s", name);
	if (S_ISDIR(st.st_mode))
		return send_directory(c, fd, &st, to, depth, err);
	if (S_ISREG(st.st_mode))
		return send_file(c, fd, &st, to, err);
	if (!depth)
		return error_set(err, ERR_UNPROCESSABLE, "%s is neither a file nor a directory",
				 name);
	skip(c, to, "neither a file nor a directory");
	return 0;
}

/* As cp does: into a directory that is there, or under the name given. */
static int copy_there(struct copy *c, const char *from, const char *to, struct error *err)
{
	_cleanup_json_ json_t *info = NULL;
	_cleanup_free_ char *clean = xstrdup(from), *target = NULL;
	int there = stat_there(c, *to ? to : "/", &info, err);

	if (there < 0)
		return -1;
	while (strlen(clean) > 1 && str_ends(clean, "/"))
		clean[strlen(clean) - 1] = '\0';
	if (is_directory(info) || !*to || str_ends(to, "/"))
		target = xasprintf("%s%s%s", to, !*to || str_ends(to, "/") ? "" : "/",
				   last_name(clean));
	else
		target = xstrdup(to);
	return send_entry(c, AT_FDCWD, from, target, 0, err);
}

/* ---- here ---- */

/* Zeros become holes: a file that is large only by its length fills no disk here either. */
static bool write_here(void *arg, const char *data, size_t len)
{
	const int fd = *(int *)arg;

	if (len >= HOLE_MIN && data[0] == 0 && memcmp(data, data + 1, len - 1) == 0)
		return lseek(fd, (off_t)len, SEEK_CUR) >= 0;
	return fd_write_all(fd, data, len, NULL) == 0;
}

/* Beside the target, then in its place: a copy that breaks off leaves what was there. */
static int fetch_file(struct copy *c, const char *from, const json_t *info, int dirfd,
		      const char *name, struct error *err)
{
	_cleanup_free_ char *url = url_of(c, "", from, ""), *part = NULL;
	_cleanup_close_ int fd = -1;
	uint64_t token;
	struct stat st;
	int r;

	random_bytes(&token, sizeof(token));
	part = xasprintf(".berth-cp-%016llx", (unsigned long long)token);
	fd = openat(dirfd, part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_errno(err, errno, "cannot write beside %s", name);

	const struct api_stream stream = { .method = "GET",
					   .path = url,
					   .accept = "application/octet-stream",
					   .on_data = write_here,
					   .wake_fd = -1,
					   .arg = &fd };

	r = api_stream(c->api, &stream, err);
	if (r == 0 && ftruncate(fd, lseek(fd, 0, SEEK_CUR)) < 0)
		r = error_errno(err, errno, "cannot write beside %s", name);
	if (r == 0 && (fstat(fd, &st) < 0 || st.st_size != json_int(info, "size", -1)))
		r = error_set(err, ERR_IO, "%s did not arrive whole", from);
	if (r == 0 && (fchmod(fd, (mode_t)strtoul(json_str(info, "mode"), NULL, 8) & 0777) < 0 ||
		       renameat(dirfd, part, dirfd, name) < 0))
		r = error_errno(err, errno, "%s", name);
	if (r < 0)
		unlinkat(dirfd, part, 0);
	else
		c->files++;
	return r;
}

static int fetch_entry(struct copy *c, const char *from, const json_t *info, int dirfd,
		       const char *name, int depth, struct error *err);

static int fetch_page(struct copy *c, const char *from, const json_t *page, int fd, int depth,
		      struct error *err)
{
	json_t *entry;
	size_t i;

	json_array_foreach (json_array_at(page, "entries"), i, entry) {
		const char *name = json_str(entry, "path");
		_cleanup_free_ char *inside = NULL;

		/* What comes from a place must not choose where it lands. */
		if (!name || !path_is_segment(name))
			return error_set(err, ERR_PROTOCOL, "the place lists an impossible name");
		inside = path_join(from, name);
		if (fetch_entry(c, inside, entry, fd, name, depth + 1, err) < 0)
			return -1;
	}
	return 0;
}

static int fetch_directory(struct copy *c, const char *from, int dirfd, const char *name, int depth,
			   struct error *err)
{
	_cleanup_close_ int fd = -1;
	_cleanup_free_ char *cursor = xstrdup("");

	if (depth == DEPTH_MAX)
		return error_set(err, ERR_BAD_PATH, "%s is nested too deeply", from);
	if (mkdirat(dirfd, name, 0777) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make %s", name);
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (depth ? O_NOFOLLOW : 0));
	if (fd < 0)
		return error_errno(err, errno, "%s", name);
	while (cursor) {
		_cleanup_json_ json_t *page = NULL;
		_cleanup_free_ char *more = *cursor ? xasprintf("&cursor=%s", cursor) : xstrdup("");
		_cleanup_free_ char *url = url_of(c, "/list", from, more);

		if (api_call(c->api, "GET", url, NULL, &page, err) < 0 ||
		    fetch_page(c, from, page, fd, depth, err) < 0)
			return -1;
		free(cursor);
		cursor = xstrdup(json_str(page, "nextCursor"));
	}
	return 0;
}

static int fetch_entry(struct copy *c, const char *from, const json_t *info, int dirfd,
		       const char *name, int depth, struct error *err)
{
	const char *type = json_str(info, "type");

	if (str_equal(type, "directory"))
		return fetch_directory(c, from, dirfd, name, depth, err);
	if (str_equal(type, "file"))
		return fetch_file(c, from, info, dirfd, name, err);
	if (!depth)
		return error_set(err, ERR_UNPROCESSABLE, "%s is a %s", from, type ? type : "?");
	skip(c, from, type ? type : "of an unknown kind");
	return 0;
}

static int copy_here(struct copy *c, const char *from, const char *to, struct error *err)
{
	_cleanup_json_ json_t *info = NULL;
	_cleanup_free_ char *target = NULL, *parent = NULL;
	_cleanup_close_ int fd = -1;
	struct stat st;
	int there = stat_there(c, from, &info, err);

	if (there <= 0)
		return there < 0
			       ? -1
			       : error_set(err, ERR_NOT_FOUND, "there is no %s in the place", from);
	if (stat(to, &st) == 0 && S_ISDIR(st.st_mode)) {
		const char *name = last_name(from);

		target = path_join(to, path_is_segment(name) ? name : ".");
	} else {
		target = xstrdup(to);
	}
	while (strlen(target) > 1 && str_ends(target, "/"))
		target[strlen(target) - 1] = '\0';
	parent = parent_of(target);
	if (dir_open(AT_FDCWD, parent, &fd, err) < 0)
		return -1;
	return fetch_entry(c, from, info, fd, last_name(target), 0, err);
}

static int cp_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_api_ struct api *api = NULL;
	struct copy c = { .cli = cli, .generation = -1 };
	const char *from = args->positional[0], *to = args->positional[1];
	const char *there_from = remote_part(from, c.lease), *there_to = remote_part(to, c.lease);
	int r;

	if (!args_int(args, "generation", 0, INT64_MAX, &c.generation))
		return EXIT_USAGE;
	if (!there_from == !there_to) {
		fputs("berth: one of the two must be LEASE:PATH, the other a path here\n", stderr);
		return EXIT_USAGE;
	}
	if (api_connect(cli, false, &api, &err) < 0)
		return cli_fail(cli, &err, 1);
	c.api = api;
	r = there_to ? copy_there(&c, from, there_to, &err) : copy_here(&c, there_from, to, &err);
	if (r < 0)
		return cli_fail(cli, &err, 1);
	if (!cli->quiet)
		fprintf(stderr, "berth: copied %zu file%s\n", c.files, c.files == 1 ? "" : "s");
	return c.skipped ? 1 : 0;
}

static const struct flag FLAGS[] = {
	{ "generation", 0, "N", "generation of the lease; an old one is refused", false },
	{ 0 },
};

VERB(CP, 130) = {
	.name = "cp",
	.arguments = "SRC LEASE:DST | LEASE:SRC DST",
	.summary = "copy files and directories to a place or from it",
	.help = "Each file is copied completely or not at all. Links, sockets and devices inside "
		"a\ndirectory are skipped and listed; the exit code is 1 then.",
	.flags = FLAGS,
	.min_args = 2,
	.max_args = 2,
	.run = cp_verb,
};
