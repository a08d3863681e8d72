import type { Messages } from "..";

export const signIn: Messages["signIn"] = {
  title: "登录",
  withToken: "用户令牌",
  withPassword: "密码",
  token: "令牌",
  tokenHelp: "您自己的令牌 pt_…，由管理员在“权限 → 用户”中创建，或使用命令",
  user: "用户名",
  password: "密码",
  submit: "登录",
  linkUsed: "登录链接无效：已被使用或已过期。",
  linkBusy: "正在登录…",
};
