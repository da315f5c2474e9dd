#include "relay/user.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"

#define DATABASE_MAX (4u << 20)
#define PASSWD_FIELDS 7
#define GROUP_FIELDS 4

/* Cuts one line of colon-separated fields in place; missing fields are empty. */
static void split_line(char *line, const char **fields, size_t count)
{
	static const char empty[] = "";

	for (size_t i = 0; i < count; i++)
		fields[i] = empty;
	for (size_t i = 0; i < count && line; i++)
		fields[i] = strsep(&line, ":");
}

static bool parse_id(const char *text, uint32_t *out)
{
	int64_t value;

	/* The last number means "no id" to the kernel. */
	if (!parse_i64(text, 0, UINT32_MAX - 1, &value))
		return false;
	*out = (uint32_t)value;
	return true;
}

/* As much memory as the file has bytes: they are few, and every start of a relay waits for this. */
static void table_read(const char *path, struct buf *out)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > DATABASE_MAX)
		return;
	buf_reserve(out, (size_t)st.st_size + 1);
	n = read(fd, out->data, (size_t)st.st_size);
	out->len = n > 0 ? (size_t)n : 0;
	out->data[out->len] = 0;
}

void user_tables_read(struct user_tables *tables)
{
	*tables = (struct user_tables){ 0 };
	table_read("/etc/passwd", &tables->passwd);
	table_read("/etc/group", &tables->group);
}

void user_tables_clear(struct user_tables *tables)
{
	buf_free(&tables->passwd);
	buf_free(&tables->group);
}

static bool passwd_lookup(struct user_tables *tables, const char *name, const uid_t *uid,
			  struct user *out)
{
	char *rest = tables->passwd.data, *line;

	while (rest && (line = strsep(&rest, "\n"))) {
		const char *field[PASSWD_FIELDS];
		uint32_t line_uid, line_gid;

		split_line(line, field, PASSWD_FIELDS);
		if (!parse_id(field[2], &line_uid) || !parse_id(field[3], &line_gid))
			continue;
		if (name ? strcmp(field[0], name) != 0 : line_uid != *uid)
			continue;
		out->uid = line_uid;
		out->gid = line_gid;
		snprintf(out->name, sizeof(out->name), "%s", field[0]);
		snprintf(out->home, sizeof(out->home), "%s", field[5][0] ? field[5] : "/");
		snprintf(out->shell, sizeof(out->shell), "%s", field[6][0] ? field[6] : "/bin/sh");
		return true;
	}
	return false;
}

static bool list_has(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
		if (strncmp(p, name, len) == 0 && (p[len] == ',' || p[len] == 0))
			return true;
	return false;
}

static void groups_lookup(struct user_tables *tables, struct user *user)
{
	char *rest = tables->group.data, *line;

	user->group_count = 0;
	if (user->name[0] == 0)
		return;
	while (rest && (line = strsep(&rest, "\n")) && user->group_count < USER_GROUPS_MAX) {
		const char *field[GROUP_FIELDS];
		uint32_t gid;

		split_line(line, field, GROUP_FIELDS);
		if (parse_id(field[2], &gid) && gid != user->gid && list_has(field[3], user->name))
			user->groups[user->group_count++] = gid;
	}
}

static void fill_unknown(struct user *user)
{
	user->name[0] = 0;
	snprintf(user->home, sizeof(user->home), "/");
	snprintf(user->shell, sizeof(user->shell), "/bin/sh");
}

void user_of_ids(struct user_tables *tables, uid_t uid, gid_t gid, struct user *out)
{
	memset(out, 0, sizeof(*out));
	if (!passwd_lookup(tables, NULL, &uid, out))
		fill_unknown(out);
	out->uid = uid;
	out->gid = gid;
	groups_lookup(tables, out);
}

int user_find(const char *text, struct user *out, struct error *err)
{
	_cleanup_(user_tables_clear) struct user_tables tables = { 0 };
	_cleanup_free_ char *copy = xstrdup(text);
	char *gid_text = strchr(copy, ':');
	uint32_t uid, gid;

	user_tables_read(&tables);
	memset(out, 0, sizeof(*out));
	if (gid_text)
		*gid_text++ = 0;
	if (parse_id(copy, &uid)) {
		if (!passwd_lookup(&tables, NULL, &uid, out)) {
			fill_unknown(out);
			out->gid = uid;
		}
		out->uid = uid;
	} else if (!passwd_lookup(&tables, copy, NULL, out)) {
		return error_set(err, ERR_EXEC, "there is no user %s", copy);
	}
	if (gid_text) {
		if (!parse_id(gid_text, &gid))
			return error_set(err, ERR_EXEC, "%s is no group number", gid_text);
		out->gid = gid;
	}
	groups_lookup(&tables, out);
	return 0;
}

void user_files_enter(const struct user *user)
{
	if (geteuid() != 0 || user->uid == 0)
		return;
	/* The group list is per thread and the relay has one; its own list is empty. */
	syscall(SYS_setgroups, user->group_count, user->groups);
	setfsgid(user->gid);
	/* Leaving uid 0 here also takes the file capabilities out of the effective set. */
	setfsuid(user->uid);
}

void user_files_leave(void)
{
	if (geteuid() != 0)
		return;
	setfsuid(0);
	setfsgid(0);
	syscall(SYS_setgroups, 0, NULL);
}
