import { theme as antd, type ThemeConfig } from "antd";

/** Ant Design in the colours of tokens.css. */
export function themeConfig(isDark: boolean): ThemeConfig {
  const palette = isDark
    ? {
        primary: "#7f90ff",
        bg: "#0d1015",
        surface: "#14181f",
        raised: "#1b2029",
        line: "#272d38",
        text: "#e5e8ed",
      }
    : {
        primary: "#3d4fd0",
        bg: "#f5f6f8",
        surface: "#ffffff",
        raised: "#ffffff",
        line: "#e2e5ea",
        text: "#181c23",
      };
  return {
    algorithm: isDark ? antd.darkAlgorithm : antd.defaultAlgorithm,
    cssVar: { key: "proctor" },
    hashed: false,
    token: {
      colorPrimary: palette.primary,
      colorInfo: palette.primary,
      colorLink: isDark ? "#9aa8ff" : "#3344bd",
      colorSuccess: isDark ? "#52c98d" : "#187544",
      colorWarning: isDark ? "#e5b04b" : "#8f5400",
      colorError: isDark ? "#ff7f7a" : "#c0272d",
      colorSuccessBg: isDark ? "#12291f" : "#e3f4ea",
      colorSuccessBorder: isDark ? "#1d4a35" : "#b4dcc5",
      colorWarningBg: isDark ? "#30250f" : "#fcf1dc",
      colorWarningBorder: isDark ? "#5a4418" : "#ecd2a0",
      colorErrorBg: isDark ? "#371a1c" : "#fdeaea",
      colorErrorBorder: isDark ? "#6b2f31" : "#f3bcbd",
      colorBgLayout: palette.bg,
      colorBgContainer: palette.surface,
      colorBgElevated: palette.raised,
      colorBorder: isDark ? "#3b4350" : "#c9ced6",
      colorBorderSecondary: palette.line,
      colorText: palette.text,
      colorTextSecondary: isDark ? "#aab2bf" : "#4d5563",
      colorTextTertiary: isDark ? "#8e97a6" : "#626b79",
      colorTextPlaceholder: isDark ? "#8e97a6" : "#626b79",
      colorTextDescription: isDark ? "#8e97a6" : "#626b79",
      borderRadius: 6,
      fontFamily: "var(--font)",
      fontFamilyCode: "var(--mono)",
      fontSize: 13,
      controlHeight: 30,
      controlHeightSM: 24,
      padding: 12,
      paddingLG: 20,
      wireframe: false,
      motionDurationMid: "0.12s",
      motionDurationSlow: "0.18s",
    },
    components: {
      Button: {
        primaryColor: isDark ? "#0d1015" : "#ffffff",
        dangerColor: isDark ? "#0d1015" : "#ffffff",
        primaryShadow: "none",
        defaultShadow: "none",
        dangerShadow: "none",
      },
      Tabs: { horizontalMargin: "0", titleFontSize: 13 },
      Form: { itemMarginBottom: 16, verticalLabelPadding: "0 0 4px" },
    },
  };
}
