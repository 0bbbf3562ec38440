# Builds SOURCE by what pkg-config says of the package in PREFIX and runs it.
set -eu
prefix=$1 cc=$2 source=$3 program=$4
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name flashattn.pc)")
export PKG_CONFIG_PATH
pkg-config --modversion flashattn
# shellcheck disable=SC2046
$cc "$source" $(pkg-config --cflags --libs flashattn) -o "$program"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir flashattn) "$program"
