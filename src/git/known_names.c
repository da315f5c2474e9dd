#include "git/known_names.h"

#include <string.h>
#include <strings.h>
#include "base/text.h"

/*
 * One pattern a line, as rule files write them and no richer: a name, a star at one end of it, a
 * slash behind a directory. With a slash inside it begins with two stars and a slash.
 */
#define NAME(text)                                                                                 \
	{                                                                                          \
		text, sizeof(text) - 1                                                             \
	}
const struct name_pattern NAMES_HIDDEN[] = {
	/* variables of programs; .envrc too, which mostly sets them */
	NAME(".env*"),
	/* keys and certificates */
	NAME("*.pem"),
	NAME("*.key"),
	NAME("*.p12"),
	NAME("*.pfx"),
	NAME("*.jks"),
	NAME("*.keystore"),
	NAME("*.kdbx"),
	NAME("*.ppk"),
	NAME("id_rsa"),
	NAME("id_dsa"),
	NAME("id_ecdsa"),
	NAME("id_ecdsa_sk"),
	NAME("id_ed25519"),
	NAME("id_ed25519_sk"),
	NAME(".ssh/"),
	NAME(".gnupg/"),
	/* passwords and tokens of tools */
	NAME(".npmrc"),
	NAME(".netrc"),
	NAME("_netrc"),
	NAME(".pypirc"),
	NAME(".pgpass"),
	NAME(".my.cnf"),
	NAME(".htpasswd"),
	NAME(".git-credentials"),
	NAME(".dockercfg"),
	NAME(".vault-token"),
	NAME(".s3cfg"),
	NAME(".boto"),
	NAME(".aws/"),
	NAME(".azure/"),
	NAME(".kube/"),
	NAME("**/.docker/config.json"),
	NAME("**/.config/gcloud/"),
	NAME("**/.config/gh/"),
	NAME("**/.cargo/credentials"),
	NAME("**/.cargo/credentials.toml"),
	NAME("**/.gem/credentials"),
	NAME("**/.m2/settings.xml"),
	NAME("**/.claude/.credentials.json"),
	NAME("**/.codex/auth.json"),
	{ 0 },
};

#define AGENT "an agent's tool"
#define EDITOR "an editor"
#define HOOK "git, as a hook"
#define PIPELINE "a build server"
#define SHELL "a shell"

static const struct {
	struct name_pattern pattern;
	const char *by;
} RUNNING[] = {
	{ NAME(".claude/"), AGENT },
	{ NAME(".mcp.json"), AGENT },
	{ NAME(".cursor/"), AGENT },
	{ NAME(".codex/"), AGENT },
	{ NAME(".gemini/"), AGENT },
	{ NAME(".opencode/"), AGENT },
	{ NAME("**/.vscode/tasks.json"), EDITOR },
	{ NAME("**/.vscode/settings.json"), EDITOR },
	{ NAME("**/.vscode/launch.json"), EDITOR },
	{ NAME("**/.vscode/mcp.json"), EDITOR },
	{ NAME("*.code-workspace"), EDITOR },
	{ NAME(".idea/"), EDITOR },
	{ NAME(".devcontainer/"), EDITOR },
	{ NAME(".devcontainer.json"), EDITOR },
	{ NAME(".vimrc"), EDITOR },
	{ NAME(".nvimrc"), EDITOR },
	{ NAME(".exrc"), EDITOR },
	{ NAME(".nvim.lua"), EDITOR },
	{ NAME(".dir-locals.el"), EDITOR },
	{ NAME(".gdbinit"), "a debugger" },
	{ NAME(".lldbinit"), "a debugger" },
	{ NAME(".envrc"), "direnv" },
	{ NAME("mise.toml"), "mise" },
	{ NAME(".mise.toml"), "mise" },
	{ NAME(".husky/"), HOOK },
	{ NAME(".githooks/"), HOOK },
	{ NAME(".pre-commit-config.yaml"), HOOK },
	{ NAME("lefthook.yml"), HOOK },
	{ NAME(".lefthook.yml"), HOOK },
	{ NAME(".gitmodules"), "git" },
	{ NAME(".gitconfig"), "git" },
	{ NAME("**/.github/workflows/"), PIPELINE },
	{ NAME("**/.github/actions/"), PIPELINE },
	{ NAME(".gitlab-ci.yml"), PIPELINE },
	{ NAME("**/.circleci/config.yml"), PIPELINE },
	{ NAME("azure-pipelines.yml"), PIPELINE },
	{ NAME("Jenkinsfile"), PIPELINE },
	{ NAME(".profile"), SHELL },
	{ NAME(".bashrc"), SHELL },
	{ NAME(".bash_profile"), SHELL },
	{ NAME(".bash_login"), SHELL },
	{ NAME(".bash_logout"), SHELL },
	{ NAME(".bash_aliases"), SHELL },
	{ NAME(".zshrc"), SHELL },
	{ NAME(".zshenv"), SHELL },
	{ NAME(".zprofile"), SHELL },
	{ NAME(".zlogin"), SHELL },
	{ NAME(".zlogout"), SHELL },
	{ NAME(".kshrc"), SHELL },
	{ NAME(".cshrc"), SHELL },
	{ NAME(".tcshrc"), SHELL },
	{ NAME(".login"), SHELL },
	{ NAME(".logout"), SHELL },
	{ NAME(".inputrc"), SHELL },
	{ NAME("config.fish"), SHELL },
};

#define ANYWHERE "**/"

typedef int compare_fn(const char *a, const char *b, size_t len);

static int compare_bytes(const char *a, const char *b, size_t len)
{
	return memcmp(a, b, len);
}

/* The beginning of the last `segments` of the path; NULL: it has fewer. */
static const char *tail_of(const char *path, size_t len, size_t segments)
{
	for (size_t i = len; i > 0; i--)
		if (path[i - 1] == '/' && --segments == 0)
			return path + i;
	return segments == 1 ? path : NULL;
}

/* `pattern_len` bytes of a pattern, without the stars before its first slash and without a slash
 * at its end, against the end of the path. */
static bool matches(const char *pattern, size_t pattern_len, const char *path, size_t len,
		    compare_fn *compare)
{
	size_t segments = 1;
	const char *tail;
	size_t tail_len;

	for (size_t i = 0; i < pattern_len; i++)
		segments += pattern[i] == '/';
	tail = tail_of(path, len, segments);
	if (!tail)
		return false;
	tail_len = len - (size_t)(tail - path);
	if (pattern[0] == '*')
		return tail_len >= pattern_len - 1 && compare(tail + tail_len - (pattern_len - 1),
							      pattern + 1, pattern_len - 1) == 0;
	if (pattern[pattern_len - 1] == '*')
		return tail_len >= pattern_len - 1 && compare(tail, pattern, pattern_len - 1) == 0;
	return tail_len == pattern_len && compare(tail, pattern, pattern_len) == 0;
}

/*
 * Most paths match nothing: their last byte tells, without a look at the rest. But for the star at
 * the end of a pattern, where the name's first does.
 */
static bool may_match(const struct name_pattern *pattern, const char *path, size_t len)
{
	char last = pattern->text[pattern->len - 1];

	if (last == '*')
		return true;
	if (last == '/')
		last = pattern->text[pattern->len - 2];
	return ((last ^ path[len - 1]) & ~0x20) == 0; /* in either case */
}

static bool matches_pattern(const struct name_pattern *pattern, const char *path, size_t len,
			    bool is_dir, compare_fn *compare)
{
	size_t skip = str_starts(pattern->text, ANYWHERE) ? strlen(ANYWHERE) : 0;
	size_t pattern_len = pattern->len - skip;

	if (pattern->text[pattern->len - 1] == '/') {
		if (!is_dir)
			return false;
		pattern_len--;
	}
	return matches(pattern->text + skip, pattern_len, path, len, compare);
}

const char *names_hide(const char *path, size_t len, bool is_dir)
{
	for (const struct name_pattern *pattern = NAMES_HIDDEN; pattern->text; pattern++)
		if (may_match(pattern, path, len) &&
		    matches_pattern(pattern, path, len, is_dir, compare_bytes))
			return pattern->text;
	return NULL;
}

const char *names_hide_within(const char *path, size_t len, bool is_dir)
{
	for (size_t i = 1; i < len; i++) {
		const char *found = path[i] == '/' ? names_hide(path, i, true) : NULL;

		if (found)
			return found;
	}
	return names_hide(path, len, is_dir);
}

/* A link could stand for each directory of a pattern: .vscode for .vscode/tasks.json. */
static bool stands_for_part(const char *pattern, const char *path, size_t len)
{
	if (str_starts(pattern, ANYWHERE))
		pattern += strlen(ANYWHERE);
	for (const char *slash = strchr(pattern, '/'); slash; slash = strchr(slash + 1, '/'))
		if (matches(pattern, (size_t)(slash - pattern), path, len, strncasecmp))
			return true;
	return false;
}

static const char *run_by(const char *path, size_t len, bool is_dir, bool is_link)
{
	for (size_t i = 0; i < ARRAY_SIZE(RUNNING); i++) {
		const struct name_pattern *pattern = &RUNNING[i].pattern;

		if ((may_match(pattern, path, len) &&
		     matches_pattern(pattern, path, len, is_dir, strncasecmp)) ||
		    (is_link && stands_for_part(pattern->text, path, len)))
			return RUNNING[i].by;
	}
	return NULL;
}

const char *names_run(const char *path, size_t len, enum tree_type type)
{
	if (type != TREE_FILE && type != TREE_SYMLINK)
		return NULL;
	for (size_t i = 1; i < len; i++) {
		const char *by = path[i] == '/' ? run_by(path, i, true, false) : NULL;

		if (by)
			return by;
	}
	return run_by(path, len, false, type == TREE_SYMLINK);
}

size_t names_part_of_repository(const char *path, size_t len, size_t dirs[NAMES_PARTS_MAX])
{
	static const char *const acted_upon[] = { "HEAD", "config", "config.worktree",
						  "commondir" };
	const char *last = tail_of(path, len, 1);
	size_t count = 0;

	for (size_t i = 0; i < ARRAY_SIZE(acted_upon); i++)
		if (matches(acted_upon[i], strlen(acted_upon[i]), path, len, compare_bytes))
			dirs[count++] = last == path ? 0 : (size_t)(last - path) - 1;
	for (size_t at = 0; at < len && count < NAMES_PARTS_MAX;) {
		const char *slash = memchr(path + at, '/', len - at);
		size_t end = slash ? (size_t)(slash - path) : len;

		if (end - at == 5 && memcmp(path + at, "hooks", 5) == 0)
			dirs[count++] = at ? at - 1 : 0;
		at = end + 1;
	}
	return count;
}
