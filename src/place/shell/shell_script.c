/*
 * File operations as one POSIX sh script, run in the place's root, by the place's own user.
 *
 * How a path is held beneath the root: the script goes down component by component with `cd -P` and
 * after each step compares `pwd -P` with the root. From then on it works on a plain name in the
 * directory it stands in, so what happens to the path behind it does not matter any more. What a
 * shell cannot do is to open a name without following a link that took its place a moment ago, to
 * hold two directories at once (rename names the source by its whole path), or to replace a
 * directory's name atomically. Whoever wins those races can make the script touch a file outside
 * the root: somebody who already runs commands in the place as the same user, and so could touch
 * that file by himself. Times are whole seconds. It needs stat and readlink as of GNU, busybox or
 * toybox.
 */
#include "place/shell/shell_script.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>
#include "base/path.h"
#include "base/text.h"

#define PATH_BYTES 4093
#define PARTS_MAX 512
#define FILE_CALL_MS 60000
#define MESSAGE_BYTES 200

/* Exit statuses of the script, and what a relay would have answered. */
#define REFUSALS(X)                                                                                \
	X(40, ERR_NOT_FOUND, "No such file or directory")                                          \
	X(41, ERR_BAD_PATH, "the path leaves the place, or links lead in a circle")                \
	X(42, ERR_CONFLICT, "File exists")                                                         \
	X(43, ERR_UNPROCESSABLE, "not the kind of file this is possible with")                     \
	X(44, ERR_CONFLICT, "Directory not empty")                                                 \
	X(45, ERR_FORBIDDEN, "Permission denied")                                                  \
	X(46, ERR_CONFLICT, "the file changed in the meantime")

/* clang-format off */
static const char SCRIPT[] =
	"set -u; umask 022; unset CDPATH; IFS=/\n"
	/* The sign behind keeps a newline at the end of a name from being lost. */
	"root=$(pwd -P && echo /) || exit 40; root=${root%?/}; here=$root\n"
	"case $root in /) root= ;; esac\n"
	"is_there() { [ -e \"./$1\" ] || [ -L \"./$1\" ]; }\n"
	"enter() {\n"
	"  for d do\n"
	"    is_there \"$d\" || exit 40\n"
	"    if ! [ -d \"./$d\" ]; then [ -L \"./$d\" ] && exit 41; exit 40; fi\n"
	"    cd -P \"./$d\" 2>/dev/null || exit 45\n"
	"    here=$(pwd -P && echo /) || exit 40; here=${here%?/}\n"
	"    case $here/ in \"$root\"/*) ;; *) exit 41 ;; esac\n"
	"  done\n"
	"}\n"
	/* The file that the links at $n lead to, at most forty of them. */
	"chase() {\n"
	"  k=0\n"
	"  while [ -L \"./$n\" ]; do\n"
	"    k=$((k + 1)); [ \"$k\" -le 40 ] || exit 41\n"
	"    t=$(readlink -- \"./$n\" && echo /) || exit 40; t=${t%?/}\n"
	"    case $t in /* | '') exit 41 ;; esac\n"
	"    n=${t##*/}\n"
	"    case $n in '' | . | ..) exit 43 ;; esac\n"
	"    case $t in */*) set -f; enter ${t%/*}; set +f ;; esac\n"
	"  done\n"
	"  is_there \"$n\" || exit 40\n"
	"}\n"
	"failed() { [ -w . ] || exit 45; exit 1; }\n"
	"line() { stat -c '%f %s %Y %u %g %i' -- \"./$1\" || exit 1; }\n"
	"info() { line \"$1\"; if [ -L \"./$1\" ]; then readlink -- \"./$1\" || exit 1; fi; }\n"
	"has_size() { s=$(wc -c <\"./$1\") || exit 1; [ \"$((s))\" -eq \"$2\" ]; }\n"
	/* Before a byte is written: $n may be replaced. $x 1: it may not be there. */
	"may_replace() {\n"
	"  is_there \"$n\" || return 0\n"
	"  [ \"$x\" = 0 ] || exit 42\n"
	"  [ -f \"./$n\" ] && ! [ -L \"./$n\" ] || exit 43\n"
	"}\n"
	"begin() { may_replace; (set -C; : >\"./$t\") || failed; }\n"
	"drop() { rm -f -- \"./$t\"; exit \"$1\"; }\n"
	"append() {\n"
	"  [ -f \"./$t\" ] && ! [ -L \"./$t\" ] || exit 46\n"
	"  cat >>\"./$t\" || drop 1\n"
	"  has_size \"$t\" \"$1\" || drop 46\n"
	"}\n"
	"commit() {\n"
	"  [ -f \"./$t\" ] && ! [ -L \"./$t\" ] && has_size \"$t\" \"$1\" || exit 46\n"
	"  (may_replace) || drop \"$?\"\n"
	"  if [ -z \"$m\" ] && [ -f \"./$n\" ]; then m=$(stat -c %a -- \"./$n\") || drop 1; fi\n"
	"  case $m in '') m=644 ;; [0-7][0-7][0-7][0-7]) m=${m#?} ;; esac\n"
	"  chmod -- \"$m\" \"./$t\" || drop 1\n"
	"  if [ \"$x\" = 1 ]; then\n"
	"    ln -- \"./$t\" \"./$n\" || { is_there \"$n\" && drop 42; drop 1; }\n"
	"    rm -f -- \"./$t\"\n"
	"  else\n"
	"    mv -f -- \"./$t\" \"./$n\" || drop 1\n"
	"  fi\n"
	"  info \"$n\"\n"
	"}\n"
	"verb=$1; shift\n"
	"case $verb in\n"
	"stat) n=$1; shift; enter \"$@\"; is_there \"$n\" || exit 40; info \"$n\" ;;\n"
	/* Names only: an empty directory, and one with too many, cost one call. */
	"names)\n"
	"  n=$1; shift; enter \"$@\"; is_there \"$n\" || exit 40; [ -d \"./$n\" ] || exit 43\n"
	"  enter \"$n\"; [ -r . ] || exit 45\n"
	"  for f in * .[!.]* ..?*; do is_there \"$f\" && printf '%s\\0' \"$f\"; done; exit 0 ;;\n"
	"entries)\n"
	"  k=$1; shift\n"
	"  while [ \"$k\" -gt 0 ]; do enter \"$1\"; shift; k=$((k - 1)); done\n"
	"  for f do set -- \"$@\" \"./$f\"; shift; done\n"
	"  stat -c '%f %s %Y %u %g %i/%n' -- \"$@\" 2>/dev/null\n"
	"  printf '\\0'\n"
	"  for f do\n"
	"    if [ -L \"$f\" ]; then printf '%s\\0' \"$f\"; readlink -- \"$f\"; printf '\\0'; fi\n"
	"  done; exit 0 ;;\n"
	/* A block of it, behind a line that tells whether it is still the same file. */
	"read)\n"
	"  b=$1 size=$2 n=$3; shift 3; enter \"$@\"; is_there \"$n\" || exit 40; chase\n"
	"  [ -f \"./$n\" ] || exit 43; [ -r \"./$n\" ] || exit 45\n"
	"  line \"$n\"\n"
	"  if [ \"$b\" -ge 0 ]; then dd if=\"./$n\" bs=\"$size\" skip=\"$b\" count=1; fi ;;\n"
	"begin) t=$1 x=$2 n=$3; shift 3; enter \"$@\"; begin ;;\n"
	"append) t=$1 s=$2; shift 3; enter \"$@\"; append \"$s\" ;;\n"
	"commit) t=$1 s=$2 m=$3 x=$4 n=$5; shift 5; enter \"$@\"; commit \"$s\" ;;\n"
	"whole)\n"
	"  t=$1 z=$2 m=$3 x=$4 n=$5; shift 5; enter \"$@\"\n"
	"  begin; append \"$z\"; commit \"$z\" ;;\n"
	"drop) t=$1; shift 2; enter \"$@\"; drop 0 ;;\n"
	"mkdir)\n"
	"  m=$1 p=$2 n=$3; shift 3\n"
	"  for e do\n"
	"    if [ \"$p\" = 1 ] && ! is_there \"$e\"; then\n"
	"      mkdir -- \"./$e\" 2>/dev/null || is_there \"$e\" || failed\n"
	"    fi\n"
	"    enter \"$e\"\n"
	"  done\n"
	"  if is_there \"$n\"; then [ \"$p\" = 1 ] && [ -d \"./$n\" ] && exit 0; exit 42; fi\n"
	"  mkdir -m \"$m\" -- \"./$n\" || failed ;;\n"
	"rename)\n"
	"  x=$1 k=$2 a=$3; shift 3\n"
	"  while [ \"$k\" -gt 0 ]; do enter \"$1\"; shift; k=$((k - 1)); done\n"
	"  is_there \"$a\" || exit 40; from=$here/$a\n"
	"  cd -P \"${root:-/}\" || exit 40; here=${root:-/}\n"
	"  b=$1; shift; enter \"$@\"\n"
	"  [ \"$from\" = \"$here/$b\" ] && exit 0\n"
	"  case $here/ in \"$from\"/*) exit 41 ;; esac\n"
	"  if is_there \"$b\"; then\n"
	"    [ \"$x\" = 0 ] || exit 42\n"
	"    if [ -L \"./$b\" ]; then\n"
	"      rm -f -- \"./$b\" || failed\n"
	"    elif [ -d \"./$b\" ]; then\n"
	"      [ -d \"$from\" ] && ! [ -L \"$from\" ] || exit 43\n"
	"      rmdir -- \"./$b\" 2>/dev/null || exit 44\n"
	"    elif [ -d \"$from\" ] && ! [ -L \"$from\" ]; then\n"
	"      exit 43\n"
	"    fi\n"
	"  fi\n"
	"  if [ \"$x\" = 1 ] && [ -f \"$from\" ] && ! [ -L \"$from\" ]; then\n"
	"    ln -- \"$from\" \"./$b\" || { is_there \"$b\" && exit 42; failed; }\n"
	"    rm -f -- \"$from\" || failed\n"
	"  else\n"
	"    mv -f -- \"$from\" \"./$b\" || failed\n"
	"  fi ;;\n"
	"remove)\n"
	"  r=$1 n=$2; shift 2; enter \"$@\"; is_there \"$n\" || exit 40\n"
	"  if [ -L \"./$n\" ] || ! [ -d \"./$n\" ]; then rm -f -- \"./$n\" || failed\n"
	"  elif [ \"$r\" = 1 ]; then rm -rf -- \"./$n\" || failed\n"
	"  elif ! rmdir -- \"./$n\"; then [ -w . ] || exit 45; exit 44; fi ;;\n"
	"chmod)\n"
	"  m=$1 n=$2; shift 2; enter \"$@\"; is_there \"$n\" || exit 40\n"
	"  ! [ -L \"./$n\" ] || exit 43\n"
	"  chmod -- \"$m\" \"./$n\" || exit 45 ;;\n"
	"*) exit 1 ;;\n"
	"esac\n";
/* clang-format on */

/* Paths */

int shell_path_parse(const char *path, struct shell_path *out, struct error *err)
{
	char *rest, *part;
	size_t parts = 0;

	*out = (struct shell_path){ .name = "." };
	if (!path || strlen(path) > PATH_BYTES)
		return error_set(err, ERR_BAD_PATH, "a path has at most %d bytes", PATH_BYTES);
	rest = out->text = xstrdup(path);
	while ((part = strsep(&rest, "/"))) {
		if (!part[0] || streq(part, "."))
			continue;
		if (streq(part, "..") || ++parts > PARTS_MAX) {
			shell_path_clear(out);
			return error_set(err, ERR_BAD_PATH,
					 parts > PARTS_MAX
						 ? "a path with too many components"
						 : "this place has no relay: a path cannot "
						   "contain \"..\"");
		}
		if (!streq(out->name, "."))
			strv_push(&out->dirs, xstrdup(out->name));
		out->name = part;
	}
	return 0;
}

void shell_path_clear(struct shell_path *path)
{
	strv_free(path->dirs);
	free(path->text);
	*path = (struct shell_path){ 0 };
}

/* Asking */

static void push(char ***argv, const char *word)
{
	strv_push(argv, xstrdup(word));
}

static void push_path(char ***argv, const struct shell_path *path)
{
	push(argv, path->name);
	for (char *const *d = path->dirs; d && *d; d++)
		push(argv, *d);
}

static char **command_for(const struct shell_ask *ask)
{
	char **argv = NULL;

	push(&argv, "sh");
	push(&argv, "-c");
	push(&argv, SCRIPT);
	push(&argv, "berth");
	push(&argv, ask->verb);
	for (size_t i = 0; i < ARRAY_SIZE(ask->words) && ask->words[i]; i++)
		push(&argv, ask->words[i]);
	if (ask->path)
		push_path(&argv, ask->path);
	if (ask->path2)
		push_path(&argv, ask->path2);
	for (char *const *m = ask->more; m && *m; m++)
		push(&argv, *m);
	return argv;
}

/* LC_ALL: the script looks at bytes, and its messages are read here. */
static char **environment_for(const struct open_place *place)
{
	char **env = NULL;

	push(&env, "LC_ALL=C");
	push(&env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	strv_push(&env, xasprintf(MARK_OWNER "=%s", place->places->owner));
	strv_push(&env, xasprintf(RELAY_MARK_PLACE "=%s", place->id));
	return env;
}

/* Its first line, as far as it is text. */
static char *first_line(const struct buf *text)
{
	_cleanup_buf_ struct buf line = { 0 };
	const char *s = buf_str(text);

	utf8_repair(&line, s, strnlen(s, MIN_OF(strcspn(s, "\n"), (size_t)MESSAGE_BYTES)));
	return buf_steal(&line);
}

static int refused(const struct one_shot_result *r, struct error *err)
{
	static const struct {
		int status;
		enum error_code code;
		const char *text;
	} refusals[] = {
#define X(status, code, text) { status, code, text },
		REFUSALS(X)
#undef X
	};
	_cleanup_free_ char *line = first_line(&r->err);

	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
		if (r->exit_code == refusals[i].status)
			return error_set(err, refusals[i].code, "%s", refusals[i].text);
	if (strstr(buf_str(&r->err), "No space left") || strstr(buf_str(&r->err), "quota exceeded"))
		return error_set(err, ERR_DISK_FULL, "%s", line);
	return error_set(err, ERR_IO, "the place's shell failed (%s %d): %s",
			 r->signal ? "signal" : "exit code", r->signal ? r->signal : r->exit_code,
			 line);
}

static int judge(const struct one_shot_result *r, struct error *err)
{
	if (r->timed_out)
		return error_set(err, ERR_TIMEOUT, "the place does not answer");
	if (r->cancelled)
		return error_set(err, ERR_LEASE_LOST, "the place was stopped");
	if (r->exit_code != 0 || r->signal)
		return refused(r, err);
	if (r->out_cut)
		return error_set(err, ERR_TOO_LARGE, "the answer is too large for one call");
	return 0;
}

int shell_ask(struct open_place *place, const struct shell_ask *ask, struct buf *out,
	      struct error *err)
{
	_cleanup_strv_ char **argv = command_for(ask), **env = environment_for(place);
	_cleanup_one_shot_result_ struct one_shot_result r = { .exit_code = -1 };
	const struct one_shot_call call = {
		.argv = argv,
		.env = env,
		.cwd = place->root ? place->root : "/",
		.input = ask->input,
		.input_len = ask->input_len,
		.timeout_ms = FILE_CALL_MS,
		.output_max = ask->output_max ? ask->output_max : (size_t)64 << 10,
		.cancel_fd = place->stop_fd,
	};
	_cleanup_error_ struct error why = { 0 };

	if (shell_call(place, &call, &r, &why) < 0) {
		if (why.code == ERR_COMMAND_NOT_FOUND || why.code == ERR_COMMAND_DENIED)
			return shell_refuse(err, "its files need a POSIX sh there");
		error_move(err, &why);
		return -1;
	}
	if (judge(&r, err) < 0)
		return -1;
	if (out) {
		*out = r.out;
		r.out = (struct buf){ 0 };
	}
	return 0;
}

/* Answers */

static const char *type_of(unsigned mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return wire_file_type_name(FILE_REGULAR);
	case S_IFDIR:
		return wire_file_type_name(FILE_DIRECTORY);
	case S_IFLNK:
		return wire_file_type_name(FILE_SYMLINK);
	case S_IFIFO:
		return wire_file_type_name(FILE_FIFO);
	case S_IFSOCK:
		return wire_file_type_name(FILE_SOCKET);
	case S_IFCHR:
		return wire_file_type_name(FILE_CHAR);
	case S_IFBLK:
		return wire_file_type_name(FILE_BLOCK);
	default:
		return wire_file_type_name(FILE_OTHER);
	}
}

/* A number, and the sign behind it. */
static bool take_number(const char **text, int base, char closing, int64_t *out)
{
	const char *s = *text;
	char *end;

	if (!isxdigit((unsigned char)*s) && *s != '-')
		return false;
	*out = strtoll(s, &end, base);
	if (end == s || *end != closing)
		return false;
	*text = end + 1;
	return true;
}

/* The text is NUL-terminated behind len, as buffers are. */
size_t shell_stat_parse(const char *text, size_t len, char closing, struct shell_stat *out)
{
	const char *s = text;
	int64_t mode, size, mtime, uid, gid, inode;

	if (!take_number(&s, 16, ' ', &mode) || !take_number(&s, 10, ' ', &size) ||
	    !take_number(&s, 10, ' ', &mtime) || !take_number(&s, 10, ' ', &uid) ||
	    !take_number(&s, 10, ' ', &gid) || !take_number(&s, 10, closing, &inode))
		return 0;
	if ((size_t)(s - text) > len || mode < 0 || mode > 0xffff || size < 0 ||
	    mtime > INT64_MAX / 1000 || mtime < INT64_MIN / 1000)
		return 0;
	*out = (struct shell_stat){
		.info = { .type = type_of((unsigned)mode),
			  .mode = (uint32_t)mode & 07777,
			  .size = size,
			  .mtime_ms = mtime * 1000,
			  .uid = uid,
			  .gid = gid },
		.inode = (uint64_t)inode,
	};
	return (size_t)(s - text);
}

int shell_info_parse(const struct buf *answer, const char *path, struct file_info *out,
		     struct error *err)
{
	const char *text = buf_str(answer);
	struct shell_stat st;
	size_t used = shell_stat_parse(text, answer->len, '\n', &st);

	if (!used)
		return error_set(err, ERR_PROTOCOL, "the place's stat answers in another way");
	*out = st.info;
	out->path = xstrdup(path);
	if (answer->len > used)
		out->target = xstrndup(text + used, answer->len - used - 1);
	return 0;
}
