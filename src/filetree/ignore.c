#include "filetree/ignore.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "filetree/ignore_pattern.h"

static const char GIT_RULES[] = ".gitignore", BERTH_RULES[] = ".berthignore";

/* The rules of one directory, all of them behind those of the directories above. */
struct level {
	size_t first_rule;
	size_t first_berth; /* those from here on are of .berthignore */
	size_t base_len;    /* of the directory's path with its slash; 0: the root */
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

/* The lines of a rule file, one after the other. */
struct lines {
	const char *at;
	size_t left;
};

static struct lines lines_of(const char *text, size_t len)
{
	bool mark = len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0;

	return (struct lines){ mark ? text + 3 : text, mark ? len - 3 : len };
}

static bool next_line(struct lines *lines, const char **line, size_t *len)
{
	const char *newline;

	if (lines->left == 0)
		return false;
	newline = memchr(lines->at, '\n', lines->left);
	*line = lines->at;
	*len = newline ? (size_t)(newline - lines->at) : lines->left;
	lines->at += *len + (newline != NULL);
	lines->left -= *len + (newline != NULL);
	return true;
}

static void add_text(struct ignore *ignore, const char *text, size_t text_len)
{
	struct lines lines = lines_of(text, text_len);
	const char *line;
	size_t len;

	while (next_line(&lines, &line, &len))
		add_line(ignore, line, len);
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
	if (fd_read_all(fd, &text, IGNORE_TEXT_MAX, err) < 0)
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
	if (git_fd >= 0 && add_file(ignore, git_fd, path, GIT_RULES, err) < 0) {
		ignore_leave(ignore);
		return -1;
	}
	ignore->levels[ignore->level_count - 1].first_berth = ignore->rule_count;
	if (berth_fd >= 0 && add_file(ignore, berth_fd, path, BERTH_RULES, err) < 0) {
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

/* The last rule that matches, and the level it is of (0: those that count everywhere). */
static const struct ignore_pattern *find_rule(const struct ignore *ignore, const char *path,
					      size_t len, bool is_dir, size_t *level)
{
	const char *slash = memrchr(path, '/', len);
	size_t base = slash ? (size_t)(slash - path) + 1 : 0;
	size_t end = ignore->rule_count;

	for (size_t i = ignore->level_count + 1; i-- > 0;) {
		size_t first = i > 0 ? ignore->levels[i - 1].first_rule : 0;
		size_t skip = i > 0 ? ignore->levels[i - 1].base_len : 0;

		for (size_t k = end; k-- > first;) {
			if (!ignore_pattern_matches(&ignore->rules[k], path + skip, len - skip,
						    base - skip, is_dir))
				continue;
			*level = i;
			return &ignore->rules[k];
		}
		end = first;
	}
	return NULL;
}

bool ignore_matches(const struct ignore *ignore, const char *path, size_t len, bool is_dir)
{
	const struct ignore_pattern *rule;
	size_t level;

	if (len == 6 && memcmp(path, ".berth", 6) == 0)
		return true;
	rule = find_rule(ignore, path, len, is_dir, &level);
	return rule && !rule->negated;
}

void ignore_reason(const struct ignore *ignore, const char *path, size_t len, bool is_dir,
		   struct buf *out)
{
	size_t number = 0;
	const struct ignore_pattern *rule = find_rule(ignore, path, len, is_dir, &number);
	const struct level *level = number > 0 ? &ignore->levels[number - 1] : NULL;

	if (!rule || rule->negated)
		return;
	if (!level) {
		buf_puts(out, ".git/info/exclude");
		return;
	}
	buf_append(out, path, level->base_len);
	buf_puts(out,
		 (size_t)(rule - ignore->rules) < level->first_berth ? GIT_RULES : BERTH_RULES);
}

bool ignore_is_rule_file(const char *path, size_t len)
{
	const char *slash = memrchr(path, '/', len);
	const char *name = slash ? slash + 1 : path;
	size_t n = len - (size_t)(name - path);

	return (n == strlen(GIT_RULES) && strncasecmp(name, GIT_RULES, n) == 0) ||
	       (n == strlen(BERTH_RULES) && strncasecmp(name, BERTH_RULES, n) == 0);
}

/* ---- one text in the place of another ---- */

struct rule {
	const char *line;
	size_t len;
	bool negated;
};

/* The next line that says something. */
static bool next_rule(struct lines *lines, struct rule *rule)
{
	struct ignore_pattern pattern;

	while (next_line(lines, &rule->line, &rule->len)) {
		if (!ignore_pattern_parse(&pattern, rule->line, rule->len))
			continue;
		rule->negated = pattern.negated;
		ignore_pattern_clear(&pattern);
		return true;
	}
	return false;
}

/* Finds the rule in what follows, behind nothing but lines that take something back. */
static bool skip_to(struct lines *lines, const struct rule *want)
{
	struct lines at = *lines;
	struct rule rule;

	while (next_rule(&at, &rule)) {
		if (rule.len == want->len && memcmp(rule.line, want->line, rule.len) == 0) {
			*lines = at;
			return true;
		}
		if (!rule.negated)
			return false;
	}
	return false;
}

/*
 * The last rule that matches wins. So a line that hides, put in anywhere, never shows a path, and
 * neither does leaving out a line that takes something back.
 */
bool ignore_shows_more(const char *old, size_t old_len, const char *now, size_t now_len)
{
	struct lines before = lines_of(old, old_len), after = lines_of(now, now_len);
	struct rule rule;

	while (next_rule(&after, &rule))
		if (!skip_to(&before, &rule) && rule.negated)
			return true;
	while (next_rule(&before, &rule))
		if (!rule.negated)
			return true;
	return false;
}
