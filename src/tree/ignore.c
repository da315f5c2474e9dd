#include "tree/ignore.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "tree/ignore_pattern.h"

#define RULE_FILE_MAX ((size_t)1 << 20)

/* The rules of one directory, all of them behind those of the directories above. */
struct level {
	size_t first_rule;
	size_t base_len; /* of the directory's path with its slash; 0: the root */
};

struct ignore {
	struct ignore_pattern *rules; /* first those that count everywhere */
	size_t rule_count, rule_cap;
	struct level *levels;
	size_t level_count, level_cap;
};

struct ignore *ignore_new(void)
{
	return xcalloc(1, sizeof(struct ignore));
}

static void drop_rules(struct ignore *ignore, size_t count)
{
	while (ignore->rule_count > count)
		ignore_pattern_clear(&ignore->rules[--ignore->rule_count]);
}

void ignore_free(struct ignore *ignore)
{
	if (!ignore)
		return;
	drop_rules(ignore, 0);
	free(ignore->rules);
	free(ignore->levels);
	free(ignore);
}

static void add_line(struct ignore *ignore, const char *line, size_t len)
{
	struct ignore_pattern rule;

	if (!ignore_pattern_parse(&rule, line, len))
		return;
	if (ignore->rule_count == ignore->rule_cap) {
		ignore->rule_cap = MAX_OF(16, ignore->rule_cap * 2);
		ignore->rules = xreallocarray(ignore->rules, ignore->rule_cap, sizeof(rule));
	}
	ignore->rules[ignore->rule_count++] = rule;
}

static void add_text(struct ignore *ignore, const char *text, size_t len)
{
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		len -= 3;
	}
	while (len > 0) {
		const char *newline = memchr(text, '\n', len);
		size_t n = newline ? (size_t)(newline - text) : len;

		add_line(ignore, text, n);
		n += newline != NULL;
		text += n;
		len -= n;
	}
}

void ignore_add_global(struct ignore *ignore, const char *text, size_t len)
{
	if (ignore->level_count > 0) /* too late: ranks would mix */
		abort();
	add_text(ignore, text, len);
}

/* A link, a directory or a fifo of that name holds no rules. */
static int add_file(struct ignore *ignore, int dir_fd, const char *dir, const char *name,
		    struct error *err)
{
	_cleanup_close_ int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	_cleanup_buf_ struct buf text = { 0 };
	struct stat st;

	if (fd < 0 && (errno == ENOENT || errno == ELOOP || errno == ENXIO))
		return 0;
	/* A directory that may be listed but not searched: nothing in it can be read anyway. */
	if (fd < 0 && errno == EACCES && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
	    errno == EACCES)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "read %s%s%s", dir, *dir ? "/" : "", name);
	if (!S_ISREG(st.st_mode))
		return 0;
	if (fd_read_all(fd, &text, RULE_FILE_MAX, err) < 0)
		return error_wrap(err, "%s%s%s", dir, *dir ? "/" : "", name);
	add_text(ignore, buf_str(&text), text.len);
	return 0;
}

int ignore_enter_from(struct ignore *ignore, const char *path, int git_fd, int berth_fd,
		      struct error *err)
{
	size_t path_len = strlen(path);
	struct level level = {
		.first_rule = ignore->rule_count,
		.base_len = path_len > 0 ? path_len + 1 : 0,
	};

	if (ignore->level_count == ignore->level_cap) {
		ignore->level_cap = MAX_OF(16, ignore->level_cap * 2);
		ignore->levels = xreallocarray(ignore->levels, ignore->level_cap, sizeof(level));
	}
	ignore->levels[ignore->level_count++] = level;
	if ((git_fd >= 0 && add_file(ignore, git_fd, path, ".gitignore", err) < 0) ||
	    (berth_fd >= 0 && add_file(ignore, berth_fd, path, ".berthignore", err) < 0)) {
		ignore_leave(ignore);
		return -1;
	}
	return 0;
}

int ignore_enter(struct ignore *ignore, const char *path, int dir_fd, struct error *err)
{
	return ignore_enter_from(ignore, path, dir_fd, dir_fd, err);
}

void ignore_leave(struct ignore *ignore)
{
	drop_rules(ignore, ignore->levels[--ignore->level_count].first_rule);
}

bool ignore_matches(const struct ignore *ignore, const char *path, size_t len, bool is_dir)
{
	const char *slash = memrchr(path, '/', len);
	size_t base = slash ? (size_t)(slash - path) + 1 : 0;
	size_t end = ignore->rule_count;

	if (len == 6 && memcmp(path, ".berth", 6) == 0)
		return true;
	for (size_t i = ignore->level_count + 1; i-- > 0;) {
		size_t first = i > 0 ? ignore->levels[i - 1].first_rule : 0;
		size_t skip = i > 0 ? ignore->levels[i - 1].base_len : 0;

		for (size_t k = end; k-- > first;)
			if (ignore_pattern_matches(&ignore->rules[k], path + skip, len - skip,
						   base - skip, is_dir))
				return !ignore->rules[k].negated;
		end = first;
	}
	return false;
}
