#include "place/places.h"

#include <pwd.h>
#include <string.h>
#include <unistd.h>
#include "base/text.h"

#define ENTRIES_MAX 4096
#define PASSWD_MAX ((size_t)64 << 10)

/* Asked once: the user of a running process does not change, and the answer may come slowly. */
char **exec_default_environment(void)
{
	_cleanup_free_ char *scratch = xmalloc(PASSWD_MAX);
	struct passwd passwd, *found = NULL;
	char **env = NULL;

	if (getpwuid_r(geteuid(), &passwd, scratch, PASSWD_MAX, &found) != 0)
		found = NULL;

	const char *home = found && found->pw_dir && found->pw_dir[0] == '/' ? found->pw_dir : "/";
	_cleanup_free_ char *number = xasprintf("%u", (unsigned)geteuid());
	const char *user = found && found->pw_name && found->pw_name[0] ? found->pw_name : number;

	strv_push(&env,
		  xstrdup("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
	strv_push(&env, xasprintf("HOME=%s", home));
	strv_push(&env, xstrdup("LANG=C.UTF-8"));
	strv_push(&env, xstrdup("TERM=dumb"));
	strv_push(&env, xasprintf("USER=%s", user));
	strv_push(&env, xasprintf("LOGNAME=%s", user));
	strv_push(&env, xstrdup("SHELL=/bin/sh"));
	strv_push(&env, xstrdup("TMPDIR=/tmp"));
	return env;
}

static size_t name_len(const char *entry)
{
	return strcspn(entry, "=");
}

static bool same_name(const char *a, const char *b)
{
	size_t len = name_len(a);

	return len == name_len(b) && memcmp(a, b, len) == 0;
}

static char **find_name(char **env, const char *entry)
{
	for (; env && *env; env++) {
		if (same_name(*env, entry))
			return env;
	}
	return NULL;
}

/* A later entry replaces an earlier one of the same name. */
static void set_entry(char ***env, char *entry)
{
	char **old = find_name(*env, entry);

	if (!old) {
		strv_push(env, entry);
		return;
	}
	free(*old);
	*old = entry;
}

/* Who another user is and what a terminal can do the relay knows better. */
static bool applies(const char *entry, const struct place_commands *commands,
		    const struct exec_spec *spec)
{
	static const char *const of_user[] = { "HOME=", "USER=", "LOGNAME=", "SHELL=" };

	if (spec->terminal && str_starts(entry, "TERM="))
		return false;
	for (size_t i = 0; (spec->user || commands->own_environment) && i < ARRAY_SIZE(of_user);
	     i++)
		if (str_starts(entry, of_user[i]))
			return false;
	return true;
}

char **exec_environment(const struct places *places, const struct place_commands *commands,
			const struct exec_spec *spec, struct error *err)
{
	_cleanup_strv_ char **env = NULL;

	for (char *const *e = places->defaults; *e; e++)
		if (applies(*e, commands, spec))
			strv_push(&env, xstrdup(*e));

	for (char *const *e = commands->env; e && *e; e++)
		set_entry(&env, xstrdup(*e));
	if (spec->env && strv_len(spec->env) > ENTRIES_MAX) {
		error_set(err, ERR_VALIDATION, "more than %d environment variables", ENTRIES_MAX);
		return NULL;
	}
	for (char *const *e = spec->env; e && *e; e++) {
		size_t len = name_len(*e);

		if (len == 0 || !(*e)[len]) {
			error_set(err, ERR_VALIDATION, "an environment variable has no name");
			return NULL;
		}
		set_entry(&env, xstrdup(*e));
	}
	/* Last, so that no command runs unmarked; the relay adds the place's and the exec's. */
	set_entry(&env, xasprintf(MARK_OWNER "=%s", places->owner));
	return steal(env);
}
