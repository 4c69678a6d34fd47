"""f32 arithmetic in WGSL's integers, for the operations WGSL does not promise to round once to nearest even.

A finite f32 is m * 2^(e - 150) with a 24-bit m. Wide numbers are vec2<u32>(high, low). Results are made by `rounded`,
which takes a 64-bit integer whose last bit is "sticky": it is one if anything below it is lost.
"""

from __future__ import annotations

EXACT_WGSL = """\
fn exponent_of(bits: u32) -> i32 {
  return max(i32((bits >> 23u) & 255u), 1);
}

fn mantissa_of(bits: u32) -> u32 {
  return (bits & 0x7fffffu) | select(0x800000u, 0u, (bits & 0x7f800000u) == 0u);
}

fn is_finite(bits: u32) -> bool {
  return (bits & 0x7f800000u) != 0x7f800000u;
}

fn wide_product(a: u32, b: u32) -> vec2<u32> {  // a, b < 2^28
  let low = (a & 0xffffu) * (b & 0xffffu);
  let middle = (a >> 16u) * (b & 0xffffu) + (a & 0xffffu) * (b >> 16u);
  let sum = low + (middle << 16u);
  return vec2<u32>((a >> 16u) * (b >> 16u) + (middle >> 16u) + select(0u, 1u, sum < low), sum);
}

fn wide_less(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.x < b.x || (a.x == b.x && a.y < b.y);
}

fn wide_leading_zeros(v: vec2<u32>) -> u32 {
  return select(countLeadingZeros(v.x), 32u + countLeadingZeros(v.y), v.x == 0u);
}

fn wide_shift_left(v: vec2<u32>, n: u32) -> vec2<u32> {  // n < 64
  if (n == 0u) { return v; }
  if (n >= 32u) { return vec2<u32>(v.y << (n - 32u), 0u); }
  return vec2<u32>((v.x << n) | (v.y >> (32u - n)), v.y << n);
}

fn wide_shift_right(v: vec2<u32>, n: u32) -> vec2<u32> {  // what is shifted out stays in the last bit
  if (n == 0u) { return v; }
  if (n >= 64u) { return vec2<u32>(0u, select(0u, 1u, (v.x | v.y) != 0u)); }
  if (n >= 32u) {
    let lost = v.y | (v.x & ((1u << (n - 32u)) - 1u));
    return vec2<u32>(0u, (v.x >> (n - 32u)) | select(0u, 1u, lost != 0u));
  }
  let lost = v.y & ((1u << n) - 1u);
  return vec2<u32>(v.x >> n, (v.x << (32u - n)) | (v.y >> n) | select(0u, 1u, lost != 0u));
}

fn rounded(sign: u32, v: vec2<u32>, exponent: i32) -> f32 {  // v * 2^exponent, v not 0
  let zeros = wide_leading_zeros(v);
  var top = wide_shift_left(v, zeros);
  let biased = exponent - i32(zeros) + 190;
  if (biased >= 255) { return bitcast<f32>(sign | 0x7f800000u); }
  if (biased < 1) { top = wide_shift_right(top, u32(1 - biased)); }
  let mantissa = top.x >> 8u;
  let rest = top.x & 255u;
  let up = rest > 128u || (rest == 128u && (top.y != 0u || (mantissa & 1u) == 1u));
  return bitcast<f32>(sign | ((u32(max(biased, 1) - 1) << 23u) + mantissa + select(0u, 1u, up)));
}

fn fma_exact(a: f32, b: f32, c: f32) -> f32 {
  let ua = bitcast<u32>(a);
  let ub = bitcast<u32>(b);
  let uc = bitcast<u32>(c);
  if (!(is_finite(ua) && is_finite(ub))) { return a * b + c; }
  if (!is_finite(uc)) { return c; }
  var x = wide_product(mantissa_of(ua), mantissa_of(ub));
  var y = vec2<u32>(0u, mantissa_of(uc));
  var sign_x = (ua ^ ub) & 0x80000000u;
  var sign_y = uc & 0x80000000u;
  if ((x.x | x.y) == 0u) { return select(c, bitcast<f32>(sign_x & sign_y), y.y == 0u); }
  var exponent_x = exponent_of(ua) + exponent_of(ub) - 300;
  if (y.y == 0u) { return rounded(sign_x, x, exponent_x); }
  let zeros_x = wide_leading_zeros(x) - 1u;  // both begin at bit 62: their sum fits
  let zeros_y = wide_leading_zeros(y) - 1u;
  x = wide_shift_left(x, zeros_x);
  y = wide_shift_left(y, zeros_y);
  exponent_x -= i32(zeros_x);
  var exponent_y = exponent_of(uc) - 150 - i32(zeros_y);
  if (exponent_x < exponent_y || (exponent_x == exponent_y && wide_less(x, y))) {
    let z = x;
    x = y;
    y = z;
    let exponent_z = exponent_x;
    exponent_x = exponent_y;
    exponent_y = exponent_z;
    let sign_z = sign_x;
    sign_x = sign_y;
    sign_y = sign_z;
  }
  y = wide_shift_right(y, u32(exponent_x - exponent_y));
  if (sign_x == sign_y) {
    let low = x.y + y.y;
    return rounded(sign_x, vec2<u32>(x.x + y.x + select(0u, 1u, low < x.y), low), exponent_x);
  }
  let difference = vec2<u32>(x.x - y.x - select(0u, 1u, x.y < y.y), x.y - y.y);
  if ((difference.x | difference.y) == 0u) { return 0.0; }
  return rounded(sign_x, difference, exponent_x);
}

fn divide_exact(a: f32, b: f32) -> f32 {
  let ua = bitcast<u32>(a);
  let ub = bitcast<u32>(b);
  let sign = (ua ^ ub) & 0x80000000u;
  var left = mantissa_of(ua);
  var right = mantissa_of(ub);
  if (!(is_finite(ua) && is_finite(ub)) || right == 0u) { return a / b; }
  if (left == 0u) { return bitcast<f32>(sign); }
  let zeros_left = countLeadingZeros(left) - 8u;
  let zeros_right = countLeadingZeros(right) - 8u;
  left <<= zeros_left;
  right <<= zeros_right;
  var quotient = 0u;
  for (var bit = 0; bit < 27; bit += 1) {
    let fits = left >= right;
    quotient = (quotient << 1u) | select(0u, 1u, fits);
    left = (left - select(0u, right, fits)) << 1u;
  }
  let exponent = exponent_of(ua) - i32(zeros_left) - exponent_of(ub) + i32(zeros_right);
  return rounded(sign, vec2<u32>(0u, (quotient << 1u) | select(0u, 1u, left != 0u)), exponent - 27);
}

fn sqrt_exact(a: f32) -> f32 {
  let bits = bitcast<u32>(a);
  if (bits >= 0x7f800000u || (bits & 0x7fffffffu) == 0u) { return sqrt(a); }
  let zeros = countLeadingZeros(mantissa_of(bits)) - 8u;
  let exponent = exponent_of(bits) - 150 - i32(zeros);
  let odd = u32(exponent & 1);
  let square = wide_shift_left(vec2<u32>(0u, mantissa_of(bits) << zeros), 28u + odd);
  var root = 0u;
  for (var bit = 0x4000000u; bit > 0u; bit >>= 1u) {
    let larger = root | bit;
    if (!wide_less(square, wide_product(larger, larger))) { root = larger; }
  }
  let exact = all(wide_product(root, root) == square);
  return rounded(0u, vec2<u32>(0u, (root << 1u) | select(1u, 0u, exact)), (exponent - i32(odd)) / 2 - 15);
}

fn to_f32(i: i32) -> f32 {  // two exact halves, rounded once
  return f32(i >> 12u) * 4096.0 + f32(i & 4095);
}

fn half_bits_exact(x: f32) -> i32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) { return i32(sign | 0x7e00u); }
  let exponent = exponent_of(bits) - 112;  // of an f16; what lies below 1 is a denormal
  if (exponent > 30) { return i32(sign | 0x7c00u); }
  let lost = 13u + u32(clamp(1 - exponent, 0, 12));
  let mantissa = mantissa_of(bits);
  let kept = mantissa >> lost;
  let rest = mantissa & ((1u << lost) - 1u);
  let middle = 1u << (lost - 1u);
  let up = rest > middle || (rest == middle && (kept & 1u) == 1u);
  return i32(sign | ((u32(max(exponent, 1) - 1) << 10u) + kept + select(0u, 1u, up)));
}

fn half_exact(bits: i32) -> f32 {
  let sign = u32(bits & 0x8000) << 16u;
  let exponent = u32(bits >> 10u) & 31u;
  let mantissa = u32(bits) & 1023u;
  if (exponent == 0u) { return bitcast<f32>(sign | bitcast<u32>(f32(mantissa) * 0x1p-24f)); }
  return bitcast<f32>(sign | (select(exponent + 112u, 255u, exponent == 31u) << 23u) | (mantissa << 13u));
}
"""
