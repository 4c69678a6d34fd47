"""f32 arithmetic in WGSL's integers, for the operations WGSL does not promise to round once to nearest even.

A finite f32 is m * 2^(e - 150) with a 24-bit m. Wide numbers are vec2<u32>(high, low). Results are made by `rounded`,
of a 64-bit integer whose last bit is sticky: it is one if anything below it is lost. Nothing branches, as lanes differ.
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

fn is_zero(v: vec2<u32>) -> bool {
  return (v.x | v.y) == 0u;
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
  let m = n & 31u;
  let across = select(v.y >> (32u - m), 0u, m == 0u);
  return select(vec2<u32>((v.x << m) | across, v.y << m), vec2<u32>(v.y << m, 0u), n >= 32u);
}

fn wide_shift_right(v: vec2<u32>, n: u32) -> vec2<u32> {  // what is shifted out stays in the last bit
  let m = n & 31u;
  let mask = (1u << m) - 1u;
  let across = select(v.x << (32u - m), 0u, m == 0u);
  let far = n >= 32u;
  let kept = select(vec2<u32>(v.x >> m, (v.y >> m) | across), vec2<u32>(0u, v.x >> m), far);
  let lost = select(v.y & mask, v.y | (v.x & mask), far);
  let none = n >= 64u;
  let sticky = select(0u, 1u, select(lost, v.x | v.y, none) != 0u);
  return vec2<u32>(select(kept.x, 0u, none), select(kept.y, 0u, none) | sticky);
}

fn rounded(sign: u32, v: vec2<u32>, exponent: i32) -> f32 {  // v * 2^exponent, v not 0
  let zeros = wide_leading_zeros(v);
  let biased = exponent - i32(zeros) + 190;
  let top = wide_shift_right(wide_shift_left(v, zeros), u32(max(1 - biased, 0)));
  let mantissa = top.x >> 8u;
  let rest = top.x & 255u;
  let up = rest > 128u || (rest == 128u && (top.y != 0u || (mantissa & 1u) == 1u));
  let magnitude = (u32(clamp(biased, 1, 255) - 1) << 23u) + mantissa + select(0u, 1u, up);
  return bitcast<f32>(sign | select(magnitude, 0x7f800000u, biased >= 255));
}

fn fma_exact(a: f32, b: f32, c: f32) -> f32 {
  let ua = bitcast<u32>(a);
  let ub = bitcast<u32>(b);
  let uc = bitcast<u32>(c);
  let product = wide_product(mantissa_of(ua), mantissa_of(ub));
  let addend = vec2<u32>(0u, mantissa_of(uc));
  let product_sign = (ua ^ ub) & 0x80000000u;
  let addend_sign = uc & 0x80000000u;
  let product_zeros = wide_leading_zeros(product) - 1u;  // both begin at bit 62: their sum fits
  let addend_zeros = wide_leading_zeros(addend) - 1u;
  let p = wide_shift_left(product, product_zeros);
  let q = wide_shift_left(addend, addend_zeros);
  let pe = select(exponent_of(ua) + exponent_of(ub) - 300 - i32(product_zeros), -9999, is_zero(product));
  let qe = select(exponent_of(uc) - 150 - i32(addend_zeros), -9999, is_zero(addend));
  let swaps = pe < qe || (pe == qe && wide_less(p, q));
  let x = select(p, q, swaps);  // the larger
  let y = wide_shift_right(select(q, p, swaps), u32(abs(pe - qe)));
  let low_sum = x.y + y.y;
  let sum = vec2<u32>(x.x + y.x + select(0u, 1u, low_sum < x.y), low_sum);
  let difference = vec2<u32>(x.x - y.x - select(0u, 1u, x.y < y.y), x.y - y.y);
  let total = select(difference, sum, product_sign == addend_sign);
  let value = rounded(select(product_sign, addend_sign, swaps), total, max(pe, qe));
  let factors_finite = is_finite(ua) && is_finite(ub);
  let result = select(value, bitcast<f32>(product_sign & addend_sign), is_zero(total));
  return select(select(a * b + c, c, factors_finite), result, factors_finite && is_finite(uc));
}

fn divide_exact(a: f32, b: f32) -> f32 {
  let ua = bitcast<u32>(a);
  let ub = bitcast<u32>(b);
  let sign = (ua ^ ub) & 0x80000000u;
  let zeros_left = countLeadingZeros(mantissa_of(ua)) - 8u;
  let zeros_right = countLeadingZeros(mantissa_of(ub)) - 8u;
  var left = mantissa_of(ua) << (zeros_left & 31u);
  let right = mantissa_of(ub) << (zeros_right & 31u);
  var quotient = 0u;
  for (var bit = 0; bit < 27; bit += 1) {
    let fits = left >= right;
    quotient = (quotient << 1u) | select(0u, 1u, fits);
    left = (left - select(0u, right, fits)) << 1u;
  }
  let exponent = exponent_of(ua) - i32(zeros_left) - exponent_of(ub) + i32(zeros_right);
  let value = rounded(sign, vec2<u32>(0u, (quotient << 1u) | select(0u, 1u, left != 0u)), exponent - 27);
  let result = select(value, bitcast<f32>(sign), mantissa_of(ua) == 0u);
  return select(a / b, result, is_finite(ua) && is_finite(ub) && right != 0u);
}

fn sqrt_exact(a: f32) -> f32 {
  let bits = bitcast<u32>(a);
  let zeros = countLeadingZeros(mantissa_of(bits)) - 8u;
  let exponent = exponent_of(bits) - 150 - i32(zeros);
  let odd = u32(exponent & 1);
  let square = wide_shift_left(vec2<u32>(0u, mantissa_of(bits) << (zeros & 31u)), 28u + odd);
  var root = 0u;
  for (var bit = 0x4000000u; bit > 0u; bit >>= 1u) {
    let larger = root | bit;
    root = select(larger, root, wide_less(square, wide_product(larger, larger)));
  }
  let sticky = select(1u, 0u, all(wide_product(root, root) == square));
  let value = rounded(0u, vec2<u32>(0u, (root << 1u) | sticky), (exponent - i32(odd)) / 2 - 15);
  return select(sqrt(a), value, bits > 0u && bits < 0x7f800000u);
}

fn to_f32(i: i32) -> f32 {  // two exact halves, rounded once
  return f32(i >> 12u) * 4096.0 + f32(i & 4095);
}

fn half_bits_exact(x: f32) -> i32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let exponent = exponent_of(bits) - 112;  // of an f16; what lies below 1 is a denormal
  let lost = 13u + u32(clamp(1 - exponent, 0, 12));
  let mantissa = mantissa_of(bits);
  let kept = mantissa >> lost;
  let rest = mantissa & ((1u << lost) - 1u);
  let middle = 1u << (lost - 1u);
  let up = rest > middle || (rest == middle && (kept & 1u) == 1u);
  let magnitude = (u32(clamp(exponent, 1, 31) - 1) << 10u) + kept + select(0u, 1u, up);
  let infinite = select(0x7c00u, 0x7e00u, (bits & 0x7fffffffu) > 0x7f800000u);
  return i32(sign | select(magnitude, infinite, exponent > 30));
}

fn half_exact(bits: i32) -> f32 {
  let sign = u32(bits & 0x8000) << 16u;
  let exponent = u32(bits >> 10u) & 31u;
  let mantissa = u32(bits) & 1023u;
  let small = bitcast<u32>(f32(mantissa) * 0x1p-24f);
  let large = (select(exponent + 112u, 255u, exponent == 31u) << 23u) | (mantissa << 13u);
  return bitcast<f32>(sign | select(large, small, exponent == 0u));
}
"""
