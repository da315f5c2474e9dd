# Sourced by ./quickstart and ./check: installs what is missing, and says what it does.
# Works for root and for a user with sudo; can be run again at any time.

if [ -t 2 ]; then
	say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
else
	say() { printf '==> %s\n' "$*" >&2; }
fi
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null 2>&1; then
		sudo "$@"
	else
		die "need root to run '$*'; run this as root or install sudo"
	fi
}

# install_packages SECTION...: the packages listed under those headings of packages.txt
install_packages() {
	local wanted missing=() package
	wanted=$(awk -v want=" $* " '
		/^#/ { heading = substr($0, 3); on = index(want, " " heading " ") > 0; next }
		NF && on' scripts/packages.txt)
	for package in $wanted; do
		dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
			missing+=("$package")
	done
	if [ ${#missing[@]} -eq 0 ]; then
		return 0
	fi
	say "installing ${#missing[@]} packages: ${missing[*]}"
	as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
	as_root env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
		die "apt-get could not install: ${missing[*]}"
}

# configure DIR MESON-OPTION...: a build directory, made once. Tests that ./quickstart left out of one
# are added when they are not asked to be left out.
configure() {
	local dir=$1
	shift
	case " $* " in
	*" -Dtests=false "*) ;;
	*)
		if [ -f "$dir/build.ninja" ] && meson configure "$dir" | grep -qE '^ *tests +false'; then
			meson setup --reconfigure "$dir" -Dtests=true >"$dir.setup.log" 2>&1 || {
				cat "$dir.setup.log" >&2
				die "meson could not configure $dir"
			}
		fi
		;;
	esac
	if [ ! -f "$dir/build.ninja" ]; then
		meson setup "$dir" "$@" >"$dir.setup.log" 2>&1 || {
			cat "$dir.setup.log" >&2
			die "meson could not configure $dir"
		}
	fi
}
