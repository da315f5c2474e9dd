#!/bin/sh
# Builds one program as a static musl executable, where nothing of libc or the host is needed at run
# time, and puts a copy where people look for it.
#   static.sh OUTPUT COPY DEPFILE SOURCE_ROOT VERSION SOURCE...
set -eu
output=$1 copy=$2 depfile=$3 root=$4 version=$5
shift 5
flags="-std=gnu17 -D_GNU_SOURCE -DBERTH_VERSION=\"$version\" -I$root -Os -fno-strict-aliasing
	-fstack-protector-strong -ffunction-sections -fdata-sections
	-Wall -Wextra -Wshadow"
# shellcheck disable=SC2086
musl-gcc $flags -MM -MT "$output" "$@" >"$depfile"
# shellcheck disable=SC2086
musl-gcc $flags -static -s -Wl,--gc-sections -Wl,-z,relro,-z,now,-z,noexecstack -o "$output" "$@"
cp -f "$output" "$copy.new"
mv -f "$copy.new" "$copy"
