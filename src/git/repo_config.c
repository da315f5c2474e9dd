#include "git/repo_config.h"

#include <string.h>
#include <strings.h>
#include "base/clock.h"
#include "base/text.h"
#include "git/cli.h"

#define CONFIG_MAX (4 << 20)
#define SEEN_MS 1000

/* Single settings that travel as they are; they name no file and no program. */
static const char *const plain_keys[] = {
	"core.filemode",
	"core.symlinks",
	"core.autocrlf",
	"core.eol",
	"core.safecrlf",
	"core.quotepath",
	"core.abbrev",
	"core.whitespace",
	"core.sparsecheckout",
	"core.sparsecheckoutcone",
	"core.commentchar",
	"user.name",
	"user.email",
	"author.name",
	"author.email",
	"committer.name",
	"committer.email",
	"init.defaultbranch",
	"pull.rebase",
	"pull.ff",
	"push.default",
	"merge.conflictstyle",
	"merge.ff",
	"rebase.autosquash",
	"diff.renames",
	"diff.algorithm",
};

void git_settings_clear(struct git_settings *settings)
{
	buf_free(&settings->for_place);
	*settings = (struct git_settings){ 0 };
}

/* Length of the part before query and fragment. */
static size_t without_query(const char *url)
{
	return strcspn(url, "?#");
}

/* scheme://[userinfo@]host...: keeps the user's name where it is needed to log in. */
static char *scrub_authority(const char *url, size_t scheme_len, bool keep_user)
{
	const char *authority = url + scheme_len;
	size_t len = without_query(authority);
	size_t host_end = strcspn(authority, "/?#");
	const char *at = memrchr(authority, '@', host_end);
	size_t user_len = 0, skip = at ? (size_t)(at - authority) + 1 : 0;

	if (at && keep_user)
		user_len = strcspn(authority, ":@");
	if (user_len)
		return xasprintf("%.*s%.*s@%.*s", (int)scheme_len, url, (int)user_len, authority,
				 (int)(len - skip), authority + skip);
	return xasprintf("%.*s%.*s", (int)scheme_len, url, (int)(len - skip), authority + skip);
}

char *git_scrub_url(const char *url)
{
	static const struct {
		const char *scheme;
		bool keep_user;
	} known[] = {
		{ "https://", false }, { "http://", false },   { "ssh://", true },
		{ "git://", true },    { "git+ssh://", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (strncasecmp(url, known[i].scheme, strlen(known[i].scheme)) == 0)
			return scrub_authority(url, strlen(known[i].scheme), known[i].keep_user);
	}
	if (strstr(url, "://") || strstr(url, "::"))
		return NULL;

	/* user@host:path, as scp takes it: a colon before the first slash. */
	size_t head = strcspn(url, ":/");

	return head && url[head] == ':' ? xstrdup(url) : NULL;
}

static void put_quoted(struct buf *out, const char *text, size_t len)
{
	buf_putc(out, '"');
	for (size_t i = 0; i < len; i++) {
		if (text[i] == '\n') {
			buf_puts(out, "\\n");
			continue;
		}
		if (text[i] == '"' || text[i] == '\\')
			buf_putc(out, '\\');
		buf_putc(out, text[i]);
	}
	buf_putc(out, '"');
}

/* key is section.name or section.subsection.name, as `git config --list` writes it. */
static void put_setting(struct buf *out, const char *key, const char *value)
{
	const char *first = strchr(key, '.'), *last = strrchr(key, '.');

	buf_printf(out, "[%.*s", (int)(first - key), key);
	if (last > first + 1) {
		buf_putc(out, ' ');
		put_quoted(out, first + 1, (size_t)(last - first) - 1);
	}
	buf_printf(out, "]\n\t%s = ", last + 1);
	put_quoted(out, value, strlen(value));
	buf_putc(out, '\n');
}

static bool is_plain(const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(plain_keys); i++) {
		if (streq(key, plain_keys[i]))
			return true;
	}
	return false;
}

static void put_url(struct buf *out, const char *key, const char *value)
{
	_cleanup_free_ char *url = git_scrub_url(value);

	if (url)
		put_setting(out, key, url);
}

static void take_extension(struct git_settings *s, const char *key, const char *value)
{
	if (streq(key, "extensions.objectformat"))
		s->sha256 = strcasecmp(value, "sha256") == 0;
	else if (streq(key, "extensions.partialclone"))
		s->partial = true;
	else if (streq(key, "extensions.refstorage") && strcasecmp(value, "files") != 0)
		s->refused = "refs are kept in another format (reftable)";
	else if (streq(key, "extensions.compatobjectformat"))
		s->refused = "it has objects under two kinds of names";
}

static void take_setting(struct git_settings *s, const char *key, const char *value)
{
	const char *first = strchr(key, '.');

	/* A newline in a subsection cannot be written into a config. */
	if (!first || strchr(key, '\n'))
		return;
	if (str_starts(key, "extensions."))
		take_extension(s, key, value);
	else if (str_starts(key, "filter."))
		s->filters = true;
	else if (is_plain(key))
		put_setting(&s->for_place, key, value);
	else if (str_starts(key, "remote.") && str_ends(key, ".promisor"))
		s->partial = s->partial || !streq(value, "false");
	else if (str_starts(key, "remote.") && (str_ends(key, ".url") || str_ends(key, ".pushurl")))
		put_url(&s->for_place, key, value);
	else if (str_starts(key, "remote.") && str_ends(key, ".fetch"))
		put_setting(&s->for_place, key, value);
	else if (str_starts(key, "branch.") &&
		 (str_ends(key, ".remote") || str_ends(key, ".merge") || str_ends(key, ".rebase")))
		put_setting(&s->for_place, key, value);
}

bool git_seen_is_fresh(int64_t asked_at)
{
	return asked_at && boottime_ms() - asked_at <= SEEN_MS;
}

struct git_seen *git_seen_new(void)
{
	return xcalloc(1, sizeof(struct git_seen));
}

void git_seen_reset(struct git_seen *seen)
{
	git_settings_clear(&seen->settings);
	buf_free(&seen->tracked);
	*seen = (struct git_seen){ 0 };
}

void git_seen_free(struct git_seen *seen)
{
	if (seen)
		git_seen_reset(seen);
	free(seen);
}

static void copy_settings(const struct git_settings *from, struct git_settings *to)
{
	*to = *from;
	to->for_place = (struct buf){ 0 };
	buf_append(&to->for_place, buf_str(&from->for_place), from->for_place.len);
}

static int ask_settings(const struct git_repo *repo, struct git_settings *out, struct error *err)
{
	struct git_call call = {
		.repo = repo,
		.args = GIT_ARGS("config", "--includes", "--list", "-z"),
		.max_output = CONFIG_MAX,
		.user_config = true,
	};
	_cleanup_buf_ struct buf list = { 0 };

	*out = (struct git_settings){ 0 };
	if (git_run(&call, &list, NULL, err) < 0)
		return error_wrap(err, "settings of the repository %s", repo->path);
	for (size_t at = 0; at < list.len;) {
		char *key = list.data + at;

		at += strlen(key) + 1;

		/* "key\nvalue", or "key" alone, which means true. A subsection may hold newlines:
		 * what follows the last dot of the key cannot. */
		char *end = strchr(key, '\n');

		if (end)
			*end = '\0';
		take_setting(out, key, end ? end + 1 : "true");
	}
	buf_printf(&out->for_place,
		   "[core]\n\trepositoryformatversion = %d\n\tbare = false\n"
		   "\tlogallrefupdates = true\n",
		   out->sha256);
	if (out->sha256)
		buf_puts(&out->for_place, "[extensions]\n\tobjectformat = sha256\n");
	return 0;
}

int git_settings_read(const struct git_repo *repo, struct git_settings *out, struct error *err)
{
	struct git_seen *seen = repo->seen;

	if (!seen)
		return ask_settings(repo, out, err);
	*out = (struct git_settings){ 0 };
	if (!git_seen_is_fresh(seen->settings_at)) {
		git_settings_clear(&seen->settings);
		seen->settings_at = 0;
		if (ask_settings(repo, &seen->settings, err) < 0)
			return -1;
		seen->settings_at = boottime_ms();
	}
	copy_settings(&seen->settings, out);
	return 0;
}

int git_place_config(int root_fd, const char *path, int cancel_fd, struct git_seen *seen,
		     char **text, struct error *err)
{
	_cleanup_repo_ struct git_repo repo = { 0 };
	_cleanup_(git_settings_clear) struct git_settings settings = { 0 };

	if (git_repo_find(root_fd, path, cancel_fd, &repo, err) < 0)
		return -1;
	if (repo.kind == GIT_NONE)
		return error_set(err, ERR_UNPROCESSABLE, "%s is no git repository", path);
	repo.seen = seen;
	if (git_settings_read(&repo, &settings, err) < 0)
		return -1;
	*text = buf_steal(&settings.for_place);
	return 0;
}
