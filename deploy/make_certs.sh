#!/usr/bin/env bash
# A small certificate authority for one cluster, and certificates that it signs. See usage below.
# Nothing is ever overwritten, and a file appears whole or not at all.
set -euo pipefail

CA_DAYS=3650

usage() {
  cat <<'USAGE'
usage: make_certs.sh [--days N] DIR NAME ADDRESS...

Makes DIR/NAME.crt and DIR/NAME.key, valid for every ADDRESS (an IP address or a DNS name, without
a port), signed by DIR/ca.crt. The first call makes that authority too (DIR/ca.crt, DIR/ca.key).

  --days N   how long the certificate is valid (default 825; the authority: 3650)

One certificate for each host of two-hosts.toml, with the addresses that its nodes advertise:

  make_certs.sh certs host-a 192.0.2.1
  make_certs.sh certs host-b 192.0.2.2 router.example.org

Copy ca.crt, NAME.crt and NAME.key to the host. ca.key stays here: whoever has it can join.
USAGE
}

fail() {
  echo "make_certs.sh: $1" >&2
  exit 2
}

san_of() {
  local address=$1 octet='(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])'
  local label='[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?'
  if [[ $address =~ ^$octet(\.$octet){3}$ || $address =~ ^[0-9a-fA-F]*:[0-9a-fA-F.]*:[0-9a-fA-F:.]*$ ]]; then
    echo "IP:$address"
  elif [[ $address =~ ^(\*\.)?$label(\.$label)*$ && ! $address =~ ^[0-9.]+$ ]]; then
    echo "DNS:$address"
  else
    fail "'$address' is neither an IP address nor a DNS name (leave out port and scheme)"
  fi
}

quiet_openssl() {
  openssl "$@" 2>"$work/log" || fail "openssl $1 failed: $(tail -n 1 "$work/log")"
}

# new_key_and_request FILE COMMON_NAME: FILE.key and FILE.csr. A P-256 key: small and quick.
new_key_and_request() {
  quiet_openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -sha256 \
    -config <(printf '[req]\ndistinguished_name=name\n[name]\n') \
    -subj "/CN=$2" -keyout "$1.key" -out "$1.csr"
}

# sign FILE DAYS EXTENSIONS SIGNER...: FILE.csr becomes FILE.crt.
sign() {
  local file=$1 days=$2 extensions=$3
  shift 3
  quiet_openssl x509 -req -in "$file.csr" -out "$file.crt" -days "$days" -sha256 \
    -set_serial "0x$(openssl rand -hex 16)" -extfile <(printf '%b' "$extensions") "$@"
}

make_authority() {
  new_key_and_request "$work/ca" "pdspan cluster authority"
  sign "$work/ca" "$CA_DAYS" "basicConstraints=critical,CA:TRUE,pathlen:0
keyUsage=critical,keyCertSign,cRLSign
subjectKeyIdentifier=hash
" -signkey "$work/ca.key"
  publish ca
}

# Every node is a server and, towards other nodes, a client.
make_certificate() {
  new_key_and_request "$work/$1" "$1"
  sign "$work/$1" "$days" "basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectAltName=$2
authorityKeyIdentifier=keyid
" -CA "$directory/ca.crt" -CAkey "$directory/ca.key"
  publish "$1"
}

# The certificate comes last: where it is, its key is too. `ln` does not replace a file.
publish() {
  chmod 644 "$work/$1.crt"
  ln "$work/$1.key" "$directory/$1.key"
  ln "$work/$1.crt" "$directory/$1.crt"
}

days=825
while [[ ${1-} == -* ]]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --days) days=${2-}; shift 2 || fail "--days needs a number" ;;
    *) fail "unknown option $1; see --help" ;;
  esac
done
[[ $days =~ ^[1-9][0-9]*$ ]] || fail "--days is '$days'; a whole number from 1 on"
if (($# < 3)); then
  usage >&2
  exit 2
fi
directory=$1 name=$2
shift 2
[[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ && $name != ca ]] || fail "'$name' is no name for a certificate"
sans=
for address in "$@"; do
  sans+=${sans:+,}$(san_of "$address")
done
command -v openssl >/dev/null || fail "openssl is not installed"

umask 077
mkdir -p "$directory"
[[ ! -e $directory/$name.crt && ! -e $directory/$name.key ]] \
  || fail "$directory/$name.crt or .key exists; remove both first to make them anew"
[[ -e $directory/ca.crt || ! -e $directory/ca.key ]] || fail "$directory/ca.key has no ca.crt beside it"
[[ ! -e $directory/ca.crt || -e $directory/ca.key ]] || fail "$directory/ca.crt has no ca.key beside it"

work=$(mktemp -d "$directory/.make_certs.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [[ ! -e $directory/ca.crt ]]; then
  make_authority
fi
make_certificate "$name" "$sans"
echo "$directory/$name.crt: $sans, $days days"
