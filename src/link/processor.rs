//! Selects the cipher suite that is fast on this machine's processor.

use super::suite::Suite;

/// The suite that is fast on this processor.
///
/// Architectures other than x86 and AArch64 count as having no AES instructions.
pub fn quick_suite() -> Suite {
    if has_aes() { Suite::Aes256Gcm } else { Suite::ChaCha20Poly1305 }
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_aes() -> bool {
    is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq")
}

/// On AArch64, `aes` includes the polynomial multiplication that GCM needs.
#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

#[cfg(all(
    test,
    target_os = "linux",
    any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")
))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_the_same_of_this_processor() {
        let known = std::fs::read_to_string("/proc/cpuinfo").expect("readable");
        let line = known
            .lines()
            .find(|line| line.starts_with("flags") || line.starts_with("Features"))
            .expect("a list of features");
        let has = |feature: &str| line.split_whitespace().any(|word| word == feature);
        let multiplies = has("pclmulqdq") || has("pmull");
        let expected =
            if has("aes") && multiplies { Suite::Aes256Gcm } else { Suite::ChaCha20Poly1305 };
        assert_eq!(quick_suite(), expected);
    }
}
